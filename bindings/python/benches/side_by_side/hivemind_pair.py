"""hivemind_.py with one more option: a group is complete with two peers, and does not wait."""

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
    use_local_updates=True,
    matchmaking_time=3.0,
    averaging_timeout=10.0,
    averager_opts={"target_group_size": 2},
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
