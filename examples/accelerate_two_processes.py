"""Train one network in two processes with accelerate, here on the CPU; each process gets half of every batch.

    torchrun --nproc-per-node=2 examples/accelerate_two_processes.py
    accelerate launch --cpu --num_processes 2 examples/accelerate_two_processes.py
    python examples/accelerate_two_processes.py

All three print the same losses: DistributedDataParallel averages the gradients, and batch norm is computed over the
joint batch. PyTorch's SyncBatchNorm does this on GPUs only, `synchronize_batch_norm` on all devices.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sfcnn.classification import load_splits
from sfcnn.models import ClassifierSizes, mnist_baseline
from sfcnn.train.distributed import synchronize_batch_norm


def main(images: int = 80, epochs: int = 2, orientations: int = 4, batch_size: int = 20) -> None:
    # `batch_size` is the total over all processes, so more processes train the same network, only faster.
    accelerator = Accelerator(
        cpu=not torch.accelerator.is_available(), dataloader_config=DataLoaderConfiguration(split_batches=True)
    )
    torch.manual_seed(0)  # the same weights in all processes
    digits = load_splits("digits-rot").train
    images_and_labels = TensorDataset(digits.images[:images], digits.labels[:images])
    loader = DataLoader(images_and_labels, batch_size, shuffle=True, generator=torch.Generator().manual_seed(0))
    # No dropout: each process would drop different units, and the losses would differ from those of one process.
    net: nn.Module = mnist_baseline(orientations, ClassifierSizes((5, 5, 3), (4, 4, 6), (8,)), dropout=0.0)
    if accelerator.num_processes > 1:
        net = synchronize_batch_norm(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)

    for epoch in range(epochs):
        net.train()
        total = torch.zeros((), device=accelerator.device)
        for inputs, labels in loader:  # this process's part of each batch
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
        mean = accelerator.reduce(total / len(loader), "mean").item()
        accelerator.print(f"{accelerator.num_processes} process(es), epoch {epoch + 1}: loss {mean:.4f}")

    # The state dict has the original parameter names: it can be loaded without accelerate, in one process.
    state = accelerator.unwrap_model(net).state_dict()
    if accelerator.is_main_process:
        torch.save(state, "digits.pt")
    accelerator.free_memory(net, optimizer, loader)  # before the process group that the network refers to
    accelerator.end_training()


if __name__ == "__main__":
    main()
