"""Client, informers, queues, runtime, leader election, certificates; knows no kind of ours (design §5)."""
