import pytest
import torch

from sfcnn.segmentation.crops import CropConfig, deform, random_bends, random_crops, standardize

STILL = CropConfig(size=8, margin=3, rotate=False, reflect=False, bend=0.0)


def crops_of(
    images: torch.Tensor, masks: torch.Tensor, count: int, config: CropConfig, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    return random_crops(images[:, None].unbind(), masks.long().unbind(), 2, count, config, generator)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(slices: int, size: int) -> torch.Tensor:
    """Slices in which every pixel has another value."""
    return torch.arange(float(slices * size * size)).view(slices, size, size)


def test_a_crop_is_a_part_of_a_slice_continued_by_reflection() -> None:
    images = numbered(3, 20)
    crops, masks = crops_of(images, images > 600, 8, STILL, generator())
    assert crops.shape == (8, 1, 14, 14)
    assert masks.shape == (8, 8, 8)
    for crop, mask in zip(crops[:, 0], masks, strict=True):
        inner = crop[3:-3, 3:-3]
        first = int(inner[0, 0])
        z, row, column = first // 400, first % 400 // 20, first % 20
        assert torch.equal(inner, images[z, row : row + 8, column : column + 8])
        assert torch.equal(mask, (inner > 600).long())
        assert torch.equal(crop, torch.nn.functional.pad(inner[None], (3,) * 4, mode="reflect")[0])


def test_image_and_mask_are_turned_mirrored_and_bent_together() -> None:
    membrane = torch.zeros(2, 64, 64)
    membrane[:, 30:34] = 1
    membrane[:, :, 10:14] = 1
    crops, masks = crops_of(membrane, membrane, 6, CropConfig(size=48, margin=4, bend=2.0), generator())
    assert torch.equal((crops[:, 0, 4:-4, 4:-4] > 0.5).long(), masks)
    assert 0.05 < float(masks.float().mean()) < 0.3


def test_all_eight_views_occur() -> None:
    images = numbered(1, 8)
    crops, _ = crops_of(images, images > 3, 64, CropConfig(size=8, margin=0, bend=0.0), generator())
    views = [images[0].rot90(k, (0, 1)) for k in range(4)]
    views += [view.flip(-1) for view in views]
    found = {next(i for i, view in enumerate(views) if torch.equal(crop, view)) for crop in crops[:, 0]}
    assert found == set(range(8))


def test_a_seed_gives_the_same_crops() -> None:
    images = torch.rand(2, 40, 40)
    config = CropConfig(size=24, margin=4)
    first, second, other = (crops_of(images, images > 0.5, 3, config, generator(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_bending_moves_pixels_as_far_as_asked() -> None:
    axis = torch.arange(160.0)
    position = torch.stack([axis.expand(160, 160), axis[:, None].expand(160, 160)])[None]
    bends = random_bends(3.0, 10.0, 8, 160, generator())
    moved = (deform(position.repeat(8, 1, 1, 1), bends) - position)[..., 40:-40, 40:-40]
    torch.testing.assert_close(moved, bends.movedim(-1, 1)[..., 40:-40, 40:-40], rtol=0, atol=1e-3)
    assert 2.4 < float(moved.std()) < 3.6
    steps = moved.diff(dim=-1).abs()
    assert float(steps.mean()) < 0.4  # neighbours move together


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 1}, "size must be at least 2, got 1"),
        ({"margin": 256}, r"margin must be in \[0, size\)"),
        ({"bend": -1.0}, "bend must be at least 0"),
        ({"any_angle": True, "rotate": False}, "any_angle rotates crops"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CropConfig(**change)  # type: ignore[arg-type]


def test_colours_and_several_classes_move_together() -> None:
    classes = torch.randint(3, (2, 5, 5), generator=generator()).repeat_interleave(8, 1).repeat_interleave(8, 2)
    images = torch.stack([classes * scale for scale in (1.0, 0.5, 0.25)], dim=1)  # (2, 3, 40, 40)
    config = CropConfig(size=24, margin=2, bend=1.0)
    crops, masks = random_crops(images.unbind(), classes.unbind(), 3, 5, config, generator())
    assert crops.shape == (5, 3, 28, 28)
    torch.testing.assert_close(crops[:, 1], crops[:, 0] / 2)
    inner = crops[:, 0, 2:-2, 2:-2]
    sure = (inner - inner.round()).abs() < 0.05  # elsewhere it lies between two classes
    assert sure.float().mean() > 0.5
    assert (inner.round()[sure] == masks[sure]).float().mean() > 0.98  # 1 lies also between 0 and 2


def test_slices_of_different_sizes_are_all_used() -> None:
    masks = [torch.zeros(10, 30).long(), torch.ones(20, 12).long()]
    crops, _ = random_crops(
        [mask[None].float() for mask in masks], masks, 2, 20, CropConfig(size=8, margin=0), generator()
    )
    assert {float(crop.mean()) for crop in crops} == {0.0, 1.0}


def test_brightness_and_contrast_of_a_standardized_slice_do_not_matter() -> None:
    image = torch.rand(30, 40)
    expected = standardize(image)
    assert expected.dtype == torch.float32
    assert abs(float(expected.mean())) < 1e-6
    assert float(expected.std(correction=0)) == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(standardize(0.3 * image + 0.1), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(standardize(image.rot90()), expected.rot90(), rtol=0, atol=1e-6)
    assert standardize(torch.full((5, 5), 0.7)).abs().max() < 1e-6  # an empty slice is black, not noise


def test_label_images_move_with_images_and_keep_their_numbers() -> None:
    labels = (
        torch.randint(-1, 2**24, (2, 5, 5), generator=generator()).repeat_interleave(12, 1).repeat_interleave(12, 2)
    )
    masks = (labels % 2).abs()
    images = masks[:, None].float()
    config = CropConfig(size=48, margin=2, bend=2.0)
    crops, targets = random_crops(images.unbind(), masks.unbind(), 2, 6, config, generator(), labels.unbind())
    assert targets.shape == (6, 2, 48, 48)
    found, numbers = targets.unbind(1)
    assert set(numbers.unique().tolist()) <= set(labels.unique().tolist())  # none lies between two
    assert (numbers % 2 == found).float().mean() > 0.97  # but for half a pixel at borders
    without = random_crops(images.unbind(), masks.unbind(), 2, 6, config, generator())
    assert torch.equal(without[0], crops)  # the crops are those of a run without labels
    assert torch.equal(without[1], found)


def test_crops_at_any_angle_are_rotated_parts_of_the_image() -> None:
    axis = torch.arange(60.0)
    position = torch.stack([axis.expand(60, 60), axis[:, None].expand(60, 60)])  # columns and rows as an image
    config = CropConfig(size=16, margin=0, any_angle=True, bend=0.0)
    assert config.window == 23
    mask = torch.zeros(60, 60).long()
    crops, _ = random_crops([position], [mask], 2, 200, config, generator())
    across = crops[..., :, -1] - crops[..., :, 0]  # how far and in which direction 15 pixels of a row lead
    torch.testing.assert_close(across.norm(dim=1), torch.full((200, 16), 15.0), rtol=0, atol=1e-3)
    torch.testing.assert_close(across, across[..., :1].expand_as(across), rtol=0, atol=1e-3)
    angles = torch.atan2(across[:, 1, 0], across[:, 0, 0])
    assert torch.histc(angles, 8, -torch.pi, torch.pi).min() > 10  # all directions occur
    down = crops[:, :, -1, 0] - crops[:, :, 0, 0]
    areas = across[:, 0, 0] * down[:, 1] - across[:, 1, 0] * down[:, 0]
    torch.testing.assert_close(areas.abs(), torch.full((200,), 225.0), rtol=0, atol=0.05)
    assert 60 < (areas < 0).sum() < 140  # about half of them are mirrored


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_rotation_by_quarter_turns_is_exact(turns: int) -> None:
    image = torch.rand(1, 2, 9, 9, dtype=torch.float64, generator=generator())
    angle = torch.tensor([turns * torch.pi / 2], dtype=torch.float64)
    found = deform(image, torch.zeros(1, 5, 5, 2, dtype=torch.float64), angle, discrete=1)
    torch.testing.assert_close(found, image.rot90(turns, (-2, -1))[..., 2:-2, 2:-2])
