"""The plain loop with hivemind.Optimizer, as its quick start writes it.

https://learning-at-home.readthedocs.io/en/latest/user/quickstart.html

The case's options are those of `hivemind.Optimizer` in which the rows of the tables differ. The
first peer prints its address, and the second one gets it. `load_state_from_peers` of the quick
start is left out, because both peers begin with the same numbers. The quick start never ends; this
program does, which needs both calls of `shutdown`.
"""

import sys

import hivemind
import torch
from task import Task

task = Task()
model = task.network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dht = hivemind.DHT(initial_peers=sys.argv[1:], start=True)
print("initial_peers", *dht.get_visible_maddrs(), flush=True)
optimizer = hivemind.Optimizer(
    dht=dht,
    run_id="side_by_side",
    batch_size_per_step=task.batch,
    target_batch_size=2 * task.every * task.batch,
    optimizer=optimizer,
    **task.options,
    matchmaking_time=3.0,
    averaging_timeout=10.0,
    verbose=True,
)
task.ready()  # measuring
for x, y in task.batches():
    optimizer.zero_grad()
    loss = task.loss(model(x), y)
    loss.backward()
    optimizer.step()
    task.step(optimizer.local_epoch)  # measuring
task.end(model)  # measuring
optimizer.shutdown()
dht.shutdown()
