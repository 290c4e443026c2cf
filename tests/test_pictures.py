from pathlib import Path

import pytest
import torch

from sfcnn.harmonics import Basis, BasisLike, averaged, resolve_basis
from sfcnn.pictures import atoms_table, new_figure, save_figure, steered_filter

SMALL = Basis((0, 1.5), (0.5, 0.8), (0, 5))


def test_the_table_has_one_panel_per_real_atom() -> None:
    figure = atoms_table("paper", 5)
    drawn = [axes for axes in figure.axes if axes.images]
    assert len(drawn) == resolve_basis("paper", 5).size
    assert {axes.get_title() for axes in drawn} >= {"Re k=0", "Re k=6", "Im k=6"}


def test_the_table_names_its_basis() -> None:
    """Two bases with the same limits are not the same atoms."""
    bases: dict[str, BasisLike] = {"averaged": averaged, "bandlimited": "bandlimited", "a basis of its own": SMALL}
    for name, basis in bases.items():
        assert atoms_table(basis, 5).get_suptitle().startswith(f"Atoms of {name} on a 5×5 grid, K = [0, ")


@pytest.mark.parametrize("orientations", [1, 5, 16, 17])
def test_a_filter_is_drawn_at_every_orientation(orientations: int) -> None:
    weight = torch.randn(18, requires_grad=True)
    figure = steered_filter(weight, "bandlimited", 7, orientations)
    images = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(images) == orientations
    if orientations == 16:
        quarter = torch.rot90(torch.as_tensor(images[0]), 1)
        torch.testing.assert_close(torch.as_tensor(images[4]), quarter)


def test_pictures_are_saved_by_their_ending(tmp_path: Path) -> None:
    figure = new_figure(2, 1)
    for ending, start in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        path = tmp_path / f"curve{ending}"
        save_figure(figure, path)
        assert path.read_bytes().startswith(start)
    with pytest.raises(ValueError, match=r"must end in one of \['.pdf', '.png', '.svg'\]"):
        save_figure(figure, tmp_path / "curve.bmp")
