"""Admission webhooks, one module each: `(request, world) -> answer` (design §6, spec 05 §2-§4, §6-§7).

What objects carry after admission, for everybody who reads them:
- Pod with the queue label: `<base>.sliced.units`, `<base>.sliced.cores-percentage`, `<base>.partitioned.units` in
  requests and limits; with `<base>.shared` N >= 2 the required node affinity
  `acceleratable.feature.gpustack.ai/<acceleratorGroup>.count Gt N-1`; the vendor's "none" value in containers without a
  card; never the agents' annotation.
- Workload of a queue `gpustack-fnv64-...` that has no quota reservation: in each PodSet's required node affinity
  `exclusive-free-cards.fit.gpustack.ai/<acceleratorGroup> Gt N-1`, `shared-free-cards... Gt N-1` (N from 1 on),
  `sliced-max-free-units... Gt U-1` (`nodefeature.labels`, decision 0420).
- InstanceType: the pool labels, and `schedule.gpustack.ai/queue-entrance` (`nodefeature.labels.QUEUE_ENTRANCE`).
"""
