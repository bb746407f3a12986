"""The whole chain as it runs: real server, client, controllers, agents and stand-ins, on virtual time."""
