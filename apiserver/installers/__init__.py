"""What a replica puts into the cluster, and takes out of it again: CRDs, settings, its Service, APIServices."""
