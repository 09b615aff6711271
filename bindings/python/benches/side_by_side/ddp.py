"""The plain loop with DistributedDataParallel over gloo, as its tutorial writes it.

https://pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

import torch
import torch.distributed as dist
from task import Task
from torch.nn.parallel import DistributedDataParallel

task = Task()
dist.init_process_group("gloo")
model = DistributedDataParallel(task.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
task.ready()  # measuring
for x, y in task.batches():
    optimizer.zero_grad()
    loss = task.loss(model(x), y)
    loss.backward()
    optimizer.step()
    task.step()  # measuring
task.end(model)  # measuring
dist.destroy_process_group()
