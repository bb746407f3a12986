"""Why an Instance or a Pod waits: five gates, judged from what stands in the cluster (pure)."""
