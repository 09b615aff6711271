"""The plain loop: one process, no network."""

import torch
from task import Task

task = Task()
model = task.network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
task.ready()  # measuring
for x, y in task.batches():
    optimizer.zero_grad()
    loss = task.loss(model(x), y)
    loss.backward()
    optimizer.step()
    task.step()  # measuring
task.end(model)  # measuring
