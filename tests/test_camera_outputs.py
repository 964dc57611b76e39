"""What is made of rendered planes: clipped distances, alpha, instances and tags, colours."""

import mujoco
import numpy as np
import pytest
from test_simulation import OPTIONS, XML, open_context

from scene_data.backends.mjcf_scene import describe_model
from scene_data.camera import CameraCfg
from scene_data.errors import UnknownNameError
from scene_data.extra_geometry import GeometryBatch
from scene_data.renderers import PlaneKind
from scene_data.renderers.segmentation_labels import BACKGROUND, UNLABELLED, SegmentationLabels, colors_of

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def read(model, *data_types: str, name: str = "side", **settings):
    """Outputs and info of a 32x24 camera in two environments; the upper half of `side` sees nothing."""
    cfg = CameraCfg(name, 32, 24, data_types, options=OPTIONS, **settings)
    with open_context(model, cameras=(cfg,)) as sim:
        data = sim.cameras[name].data
        return {data_type: data[data_type].clone() for data_type in data_types}, data.info, data


class TestClipping:
    def test_none_leaves_what_was_measured_and_copies_nothing(self, model):
        _, _, data = read(model, "depth")
        assert torch.isinf(data["depth"]).any()
        assert data["depth"].data_ptr() == data.lease("depth").numpy().ctypes.data

    @pytest.mark.parametrize("data_type", ["depth", "distance_to_image_plane", "distance_to_camera"])
    @pytest.mark.parametrize("behavior", ["max", "zero"])
    def test_brings_distances_into_the_range(self, model, data_type, behavior):
        measured = read(model, data_type)[0][data_type].numpy()
        clipped, _, data = read(model, data_type, depth_clipping_behavior=behavior, clipping_range=(2.75, 4.0))
        expected = np.clip(measured, 2.75, 4.0)
        if behavior == "zero":
            expected = np.where((measured >= 2.75) & (measured <= 4.0), measured, 0.0)
        np.testing.assert_array_equal(clipped[data_type].numpy(), expected.astype(np.float32))
        assert {True, False} == set((measured == expected).ravel())  # the test is about both
        np.testing.assert_array_equal(data.lease(data_type).numpy(), measured)

    def test_does_not_touch_other_outputs(self, model):
        frames, _, data = read(model, "rgb", "depth", depth_clipping_behavior="zero")
        assert frames["depth"].isfinite().all()
        assert data["rgb"].data_ptr() == data.lease("rgb").numpy().ctypes.data

    def test_bad_input(self):
        with pytest.raises(
            UnknownNameError, match="depth clipping behavior of camera 'top' 'near'. Known: none, max, zero"
        ):
            CameraCfg("top", 8, 8, depth_clipping_behavior="near")
        with pytest.raises(ValueError, match="camera 'top'.*is no range of distances"):
            CameraCfg("top", 8, 8, clipping_range=(2.0, 1.0))


def test_alpha_tells_what_was_seen(model):
    frames, _, _ = read(model, "rgb", "rgba", "segmentation")
    rgba, seen = frames["rgba"], frames["segmentation"][..., 0] >= 0
    assert rgba.shape == (2, 24, 32, 4)
    assert torch.equal(rgba[..., :3], frames["rgb"])
    assert torch.equal(rgba[..., 3] == 255, seen)
    assert torch.equal(rgba[..., 3] == 0, ~seen)


class TestLabels:
    def test_instances_have_paths_and_differ_among_environments(self, model):
        frames, info, _ = read(model, "segmentation", "instance_segmentation")
        geoms, ids = frames["segmentation"][..., 0].numpy(), frames["instance_segmentation"][..., 0].numpy()
        assert frames["instance_segmentation"].dtype == torch.int32
        assert frames["instance_segmentation"].shape == (2, 24, 32, 1)
        table = info.id_to_labels["instance_segmentation"]
        expected = {-1: "BACKGROUND", 0: "/World/envs/env_{}/world", 1: "/World/envs/env_{}/slab"}
        for env in range(2):
            for geom, path in expected.items():
                found = {table[int(i)] for i in np.unique(ids[env][geoms[env] == geom])}
                assert found == {path.format(env)}

    def test_tags_of_shapes_go_before_those_of_bodies(self, model):
        tags = {"sl*": "robot", "world": "building", "floor": "ground"}
        frames, info, _ = read(model, "segmentation", "semantic_segmentation", semantic_tags=tags)
        geoms, ids = frames["segmentation"][..., 0].numpy(), frames["semantic_segmentation"][..., 0].numpy()
        table = info.id_to_labels["semantic_segmentation"]
        assert table == {0: "BACKGROUND", 1: "UNLABELLED", 2: "robot", 3: "building", 4: "ground"}
        for geom, tag in {-1: "BACKGROUND", 0: "ground", 1: "robot"}.items():
            assert {table[int(i)] for i in np.unique(ids[geoms == geom])} == {tag}

    def test_what_has_no_tag_is_unlabelled(self, model):
        frames, _, _ = read(model, "segmentation", "semantic_segmentation", semantic_tags=(("slab", "robot"),))
        floor = frames["segmentation"][..., 0] == 0
        assert (frames["semantic_segmentation"][..., 0][floor] == UNLABELLED).all()

    def test_extra_geometry_is_unlabelled(self, model):
        types = ("segmentation", "instance_segmentation", "semantic_segmentation")
        cfg = CameraCfg("top", 32, 24, types, options=OPTIONS, semantic_tags={"*": "thing"})
        with open_context(model, cameras=(cfg,)) as sim:
            sim.add_geometry_source(lambda: GeometryBatch.spheres((0, 0, 1.5), 0.2))
            data = sim.cameras["top"].data
            extra = data["segmentation"][..., 1] == 0
            assert extra.any()
            for data_type in types[1:]:
                assert (data[data_type][..., 0][extra] == UNLABELLED).all()
                assert (data[data_type][..., 0][~extra] > UNLABELLED).all()

    def test_a_flex_is_an_instance(self):
        xml = """<mujoco><worldbody><body name="box"><geom name="box" size="1"/></body>
        <flexcomp name="cloth" type="grid" count="3 3 1" spacing=".2 .2 .2" dim="2"/></worldbody></mujoco>"""
        scene = describe_model(mujoco.MjModel.from_xml_string(xml), 2)
        labels = SegmentationLabels(scene, [("cl*", "cloth"), ("box", "solid")])
        segmentation = torch.tensor([[[[0, 5], [0, 9], [-1, -1], [3, 0]]]] * 2, dtype=torch.int32)
        names = [labels.instances[int(i)] for i in labels.instance_ids(segmentation)[1].ravel()]
        assert names == ["/World/envs/env_1/box", "/World/envs/env_1/cloth", "BACKGROUND", "UNLABELLED"]
        tags = [labels.tags[int(i)] for i in labels.semantic_ids(segmentation)[1].ravel()]
        assert tags == ["solid", "cloth", "BACKGROUND", "UNLABELLED"]
        assert len(set(labels.instances.values())) == len(labels.instances)

    def test_colours_on_request(self, model):
        frames, _, _ = read(model, "semantic_segmentation", semantic_tags={"slab": "a", "floor": "b"})
        colored, _, _ = read(
            model, "semantic_segmentation", semantic_tags={"slab": "a", "floor": "b"}, colorize_segmentation=True
        )
        ids, colors = frames["semantic_segmentation"], colored["semantic_segmentation"]
        assert colors.shape == (2, 24, 32, 4)
        assert colors.dtype == torch.uint8
        assert torch.equal(colors, colors_of(ids))
        assert (colors[(ids == BACKGROUND).expand_as(colors)] == 0).all()
        assert len(torch.unique(colors.view(-1, 4), dim=0)) == len(torch.unique(ids))

    def test_a_pattern_that_matches_nothing_is_refused(self, model):
        with pytest.raises(UnknownNameError, match=r"name in semantic_tags 'robot\*'. Known: floor, world/floor, slab"):
            read(model, "semantic_segmentation", semantic_tags={"robot*": "robot"})

    def test_the_lease_is_the_segmentation_they_are_made_of(self, model):
        _, _, data = read(model, "semantic_segmentation")
        assert data.lease("semantic_segmentation").plane is PlaneKind.SEGMENTATION
