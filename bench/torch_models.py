"""The five models of the papers' scenarios in plain PyTorch, with random weights: what counts is the work they do.

Stands alone: any interpreter with torch runs it, torchvision is not needed. Layer sizes are those of the published
architectures (VGG-19, ResNet-152, DenseNet-201, Inception v3, BERT base with 128 tokens); batch 1.

``python torch_models.py`` on a GPU prints the kernels of each model with their durations, as TOML for ``models.toml``;
with ``--estimate`` it computes them from the layers' arithmetic and memory traffic instead, which needs no GPU.
"""
# torch is not installed where the types are checked: its classes are Any there.
# mypy: disable-error-code="misc"

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


TOKENS = 128
VOCABULARY = 30522


def conv(inputs: int, outputs: int, size: Any, stride: int = 1, padding: Any = 0) -> Any:
    """A convolution with batch normalisation and ReLU."""
    layer = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def vgg19() -> Any:
    """16 convolutions, 3 dense layers."""
    layers: list[Any] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 4096)]
    return nn.Sequential(*layers, *head, nn.ReLU(inplace=True), nn.Linear(4096, 1000))


class Bottleneck(nn.Module):
    """ResNet's block: 1x1, 3x3, 1x1, and the shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        last = nn.Sequential(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.body = nn.Sequential(conv(inputs, width, 1), conv(width, width, 3, stride, 1), last)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        """Add the shortcut."""
        return functional.relu(self.body(x) + self.shortcut(x))


def _head(channels: int) -> list[Any]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]


def resnet152() -> Any:
    """3 + 8 + 36 + 3 bottlenecks."""
    layers: list[Any] = [conv(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate((3, 8, 36, 3)):
        width = 64 << stage
        for block in range(count):
            layers.append(Bottleneck(channels, width, 2 if stage and not block else 1))
            channels = 4 * width
    return nn.Sequential(*layers, *_head(channels))


def _before(inputs: int, outputs: int, size: int, padding: int = 0) -> Any:
    """DenseNet's order: normalise, ReLU, convolve."""
    layers = (nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.Conv2d(inputs, outputs, size, 1, padding, bias=False))
    return nn.Sequential(*layers)


class Dense(nn.Module):
    """DenseNet's layer: 32 new channels behind all earlier ones."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_before(inputs, 128, 1), _before(128, 32, 3, 1))

    def forward(self, x: Any) -> Any:
        """Concatenate."""
        return torch.cat([x, self.body(x)], 1)


def densenet201() -> Any:
    """6 + 12 + 48 + 32 layers with three transitions."""
    layers: list[Any] = [conv(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for block, count in enumerate((6, 12, 48, 32)):
        for _ in range(count):
            layers.append(Dense(channels))
            channels += 32
        if block < 3:
            layers += [_before(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), *_head(channels))


class Branches(nn.Module):
    """Inception's block: branches side by side, concatenated."""

    def __init__(self, *branches: Any) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Any) -> Any:
        """Concatenate."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def _pooled(inputs: int, outputs: int) -> Any:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(inputs, outputs, 1))


def _inception_a(inputs: int, pool: int) -> Any:
    five = nn.Sequential(conv(inputs, 48, 1), conv(48, 64, 5, 1, 2))
    three = nn.Sequential(conv(inputs, 64, 1), conv(64, 96, 3, 1, 1), conv(96, 96, 3, 1, 1))
    return Branches(conv(inputs, 64, 1), five, three, _pooled(inputs, pool))


def _inception_c(width: int) -> Any:
    """Factorised 7x7 convolutions on 768 channels."""
    row, column = ((1, 7), (0, 3)), ((7, 1), (3, 0))
    short = nn.Sequential(conv(768, width, 1), conv(width, width, *_flat(row)), conv(width, 192, *_flat(column)))
    sizes = (column, row, column)
    middle = [conv(width, width, *_flat(size)) for size in sizes]
    long = nn.Sequential(conv(768, width, 1), *middle, conv(width, 192, *_flat(row)))
    return Branches(conv(768, 192, 1), short, long, _pooled(768, 192))


def _flat(size: Any) -> Any:
    return size[0], 1, size[1]


def _inception_e(inputs: int) -> Any:
    def split() -> Any:
        return Branches(conv(384, 384, (1, 3), 1, (0, 1)), conv(384, 384, (3, 1), 1, (1, 0)))

    short = nn.Sequential(conv(inputs, 384, 1), split())
    long = nn.Sequential(conv(inputs, 448, 1), conv(448, 384, 3, 1, 1), split())
    return Branches(conv(inputs, 320, 1), short, long, _pooled(inputs, 192))


def inception_v3() -> Any:
    """Input 299 x 299; the auxiliary classifier is for training only."""
    stem = [conv(3, 32, 3, 2), conv(32, 32, 3), conv(32, 64, 3, 1, 1), nn.MaxPool2d(3, 2)]
    stem += [conv(64, 80, 1), conv(80, 192, 3), nn.MaxPool2d(3, 2)]
    double = nn.Sequential(conv(288, 64, 1), conv(64, 96, 3, 1, 1), conv(96, 96, 3, 2))
    to_17 = Branches(conv(288, 384, 3, 2), double, nn.MaxPool2d(3, 2))
    three = nn.Sequential(conv(768, 192, 1), conv(192, 320, 3, 2))
    seven = nn.Sequential(conv(768, 192, 1), conv(192, 192, (1, 7), 1, (0, 3)), conv(192, 192, (7, 1), 1, (3, 0)))
    to_8 = Branches(three, nn.Sequential(seven, conv(192, 192, 3, 2)), nn.MaxPool2d(3, 2))
    body = [_inception_a(192, 32), _inception_a(256, 64), _inception_a(288, 64), to_17]
    body += [_inception_c(width) for width in (128, 160, 160, 192)]
    return nn.Sequential(*stem, *body, to_8, _inception_e(1280), _inception_e(2048), *_head(2048))


class BertLayer(nn.Module):
    """Self-attention and the feed-forward part, each with its residual and normalisation."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Any) -> Any:
        """Shape [1, TOKENS, width] in and out."""
        query, key, value = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = self.norms[0](x + self.out(attended))
        return self.norms[1](x + self.down(functional.gelu(self.up(x))))


def bert() -> Any:
    """BERT base: 12 layers of width 768, and the pooler."""
    embedding = [nn.Embedding(VOCABULARY, 768), nn.LayerNorm(768)]
    return nn.Sequential(*embedding, *(BertLayer() for _ in range(12)), nn.Linear(768, 768), nn.Tanh())


MODELS: dict[str, Callable[[], Any]] = {
    "vgg19": vgg19,
    "resnet152": resnet152,
    "densenet201": densenet201,
    "inception_v3": inception_v3,
    "bert": bert,
}


def example(name: str) -> Any:
    """One input, on the host."""
    if name == "bert":
        return torch.randint(0, VOCABULARY, (1, TOKENS))
    side = 299 if name == "inception_v3" else 224
    return torch.randn(1, 3, side, side)


def build(name: str) -> tuple[Any, Any]:
    """Return the model (FP32, evaluation mode, on the host) and one input; raise ``KeyError`` for an unknown name."""
    return MODELS[name]().eval(), example(name)


#: Of an H200: FP32 without tensor cores and HBM3e at the shares that libraries reach, and what a kernel takes at least
#: at batch 1 (resnet50 as a CUDA graph: 1.2 ms for about 170 kernels).
_FLOPS_PER_US, _BYTES_PER_US, _LEAST_US = 67e6 * 0.6, 4.8e6 * 0.7, 7.0
_HEAVY = (nn.Conv2d, nn.Linear, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.LayerNorm, nn.Embedding)
_FUSED = (
    nn.BatchNorm2d,
    nn.ReLU,
    nn.Tanh,
    nn.Flatten,
    nn.Identity,
)  # into the kernel before, as inference compilers do


_REPLAYS = 20


def estimate(name: str) -> list[float]:
    """µs of each kernel by arithmetic and traffic alone, element-wise layers fused into the kernel before them."""
    with torch.device("meta"):
        model, host = build(name)
    lengths: list[float] = []

    def note(layer: Any, inputs: Any, output: Any) -> None:
        moved = inputs[0].numel() + output.numel() + sum(weight.numel() for weight in layer.parameters())
        flops = 0
        if isinstance(layer, nn.Conv2d | nn.Linear):
            flops = 2 * output.numel() * (layer.weight.numel() // layer.weight.shape[0])
        if isinstance(layer, nn.Embedding):
            moved = 2 * output.numel()
        lengths.append(max(_LEAST_US, flops / _FLOPS_PER_US, 4 * moved / _BYTES_PER_US))

    for layer in model.modules():
        if not list(layer.children()) and not isinstance(layer, _HEAVY + _FUSED):
            raise TypeError(f"no estimate for {type(layer).__name__}")
        if isinstance(layer, BertLayer):  # attention and GELU are functions: one kernel each
            layer.register_forward_hook(lambda *_: lengths.extend([_LEAST_US] * 2))
        if isinstance(layer, _HEAVY):
            layer.register_forward_hook(note)
    with torch.inference_mode():
        model(host.to("meta"))
    return lengths


def record(name: str) -> tuple[list[float], str]:
    """µs of each kernel of one inference on this GPU, and how they were found: by the profiler, or by total alone."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    model, host = build(name)
    model, host = model.cuda(), host.cuda()
    with torch.inference_mode():
        for _ in range(20):
            model(host)
        torch.cuda.synchronize()
        lengths = _profiled(model, host)
        if lengths:
            return lengths, "recorded"
        total = _total_us(model, host)
    guessed = estimate(name)
    return [us * total / sum(guessed) for us in guessed], "total recorded, its split estimated,"


def _profiled(model: Any, host: Any) -> list[float]:
    """Empty where the profiler cannot see the GPU."""
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            model(host)
            torch.cuda.synchronize()
        kernels = [event for event in profiled.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    except RuntimeError as error:
        print(f"no profile: {error}", file=sys.stderr)
        return []
    kernels.sort(key=lambda event: event.time_range.start)
    return [max(0.1, event.time_range.elapsed_us()) for event in kernels]


def _total_us(model: Any, host: Any) -> float:
    """One inference by the GPU's own clock, as a CUDA graph, so that the host's launches do not count."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(host)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(_REPLAYS):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / _REPLAYS


def main() -> int:
    """Print all models as TOML."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--estimate", action="store_true", help="compute instead of measure; needs no GPU")
    args = parser.parse_args()
    if not args.estimate and not torch.cuda.is_available():
        print("PyTorch finds no CUDA device; use --estimate", file=sys.stderr)
        return 77
    for name in MODELS:
        if args.estimate:
            lengths, origin = estimate(name), "estimated for an H200 from the layers"
        else:
            lengths, how = record(name)
            origin = f"{how} on {torch.cuda.get_device_name()}"
        print(f'[{name}]\nkind = "torch"\norigin = "{origin}, FP32, batch 1"')
        print(f"kernels_us = [{', '.join(f'{us:.1f}' for us in lengths)}]\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
