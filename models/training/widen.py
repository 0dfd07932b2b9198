"""Begins a wide network with a narrower one's weights so that it computes the same at first: the old channels keep their
kernels and take nothing from the new ones; the new ones begin at random, and training connects them."""
import torch


def gfpgan_parts(name, dim):
    """In how many parts, by size, the channels of a tensor's dimension lie one after the other. Of what leaves a level's first
    style convolution, half passes by and half is scaled (gfpgan.py)."""
    if ".style_convs." not in name:
        return (1,)
    first = int(name.split(".style_convs.")[1].split(".")[0]) % 2 == 0
    modulation = ".modulation." in name
    inputs = (modulation and dim == 0) or (name.endswith("modulated_conv.weight") and dim == 2)
    outputs = not modulation and dim == 1
    return (1, 1) if (outputs if first else inputs) else (1,)


def retinaface_parts(name, dim):
    """The heads see the context module's three fields side by side."""
    return (2, 1, 1) if "Head." in name and dim == 1 else (1,)


def places(old, new, parts):
    """Where old channels lie among new ones."""
    whole, out = sum(parts), []
    at = [0, 0]
    for part in parts:
        sizes = [count * part // whole for count in (old, new)]
        out += range(at[1], at[1] + sizes[0])
        at = [a + s for a, s in zip(at, sizes)]
    return torch.tensor(out)


@torch.no_grad()
def widen(net, tensors, parts):
    """Puts a narrower (or equal) network's tensors into net; parts as above."""
    state = net.state_dict()
    for name, target in state.items():
        old = tensors.get(name)
        if old is None or not target.is_floating_point():
            continue
        if old.dim() != target.dim() or any(a > b for a, b in zip(old.shape, target.shape)):
            raise ValueError(f"{name}: {tuple(old.shape)} does not fit into {tuple(target.shape)}")
        index = [places(a, b, parts(name, d)) for d, (a, b) in enumerate(zip(old.shape, target.shape))]
        # Old outputs take nothing from new inputs. Modulated kernels have a dimension before; vectors and maps have no inputs.
        outputs = 1 if old.dim() == 5 else 0
        if old.dim() > 1 and old.shape[outputs + 1:] != target.shape[outputs + 1:] and "constant_input" not in name and \
                not (old.dim() == 4 and name.endswith(".bias")):
            target.index_fill_(outputs, index[outputs], 0)
        target[torch.meshgrid(*index, indexing="ij")] = old.to(target.dtype)
    net.load_state_dict(state)
    return net
