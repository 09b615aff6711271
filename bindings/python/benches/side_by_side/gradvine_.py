"""The plain loop with gradvine: the rule, and how long the run is, are in its experiment file."""

import torch
from task import Task

import gradvine

task = Task()
model = task.network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
node = gradvine.join("node.toml", model, rows=task.rows, every=task.every)
sync = gradvine.attach(node, model, optimizer)
task.ready()  # measuring
for x, y in task.batches():
    optimizer.zero_grad()
    loss = task.loss(model(x), y)
    loss.backward()
    optimizer.step()
    task.step()  # measuring
    if sync.done:
        break
gradvine.finish(sync)
task.end(model)  # measuring
