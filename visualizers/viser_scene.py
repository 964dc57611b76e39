"""The scene as viser shows it: sent once, and its poses again and again."""

import io
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray
from PIL import Image
from trimesh import Trimesh
from trimesh.visual import TextureVisuals
from trimesh.visual.material import PBRMaterial

from scene_data.geometry_sources import PackedGeometry
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription, ShapeDescription, ShapeType

from .height_fields import HeightFieldWatch
from .instance_poses import InstancePoses, PlacedInstances
from .instancing import InstanceGroup, Instances, body_frames, instance_groups, with_height_field
from .shape_colors import ShapeColors
from .texturing import Skin, colour_bytes
from .viser_contacts import ViserContacts
from .viser_deformables import ViserDeformables
from .viser_markers import ViserMarkers
from .viser_updates import InstanceBatch, send_update

__all__ = ["ViserScene"]

_ROOT = "/scene"
_DRAWN_GROUPS = (0, 1, 2)
_ENVIRONMENT_LIGHT = 0.3
_FRAME_LENGTH = 0.06


class ViserScene:
    """What stands and moves in one viser server.

    Every geometry is one batched mesh over all the environments that are shown. Nothing but poses is sent after that,
    only those that have changed and can be seen, and colours that were set. A height field is sent again where its data
    has changed.

    Args:
        server: Where to show it.
        provider: Publishes the poses.
        scene: What there is.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.

    Attributes:
        groups: Visibility groups that something is in, each with whether it is shown.
        contacts: Contact points and forces.
    """

    def __init__(
        self,
        server: viser.ViserServer,
        provider: SceneDataProvider,
        scene: SceneDescription,
        env_ids: NDArray[np.int64],
        offsets: NDArray[np.float64],
    ):
        self._server = server
        self._provider = provider
        self._scene = scene
        self._env_ids = env_ids
        self._handles: list[tuple[int, Any]] = []
        self._batches: list[InstanceBatch] = []
        self._terrains: list[tuple[InstanceGroup, Any]] = []
        self._colors = ShapeColors(scene)
        self._painted: list[tuple[Any, Instances, NDArray[np.int64]]] = []
        self._grounds: list[tuple[Any, ShapeDescription]] = []
        self._height_fields = HeightFieldWatch(provider, scene)
        reach = float(np.abs(offsets).max()) if len(offsets) else 0.0
        endless = max(10.0 * scene.extent, 4.0 * reach)
        is_spread = reach > 0.0
        ground = [shape for shape in scene.shapes if _is_ground(scene, shape)]
        groups = instance_groups(scene, endless, extend_planes=is_spread, skip=ground) if len(env_ids) else []
        # What stands in every environment alike is there once, unless they are spread out; one floor serves them all.
        envs = [env_ids[:1] if group.is_static and (group.is_plane or not is_spread) else env_ids for group in groups]
        instances = [*(group.instances for group in groups), body_frames(scene)]
        self._poses = InstancePoses(provider, scene, instances, [*envs, env_ids], env_ids)
        # The one floor does not move with the first environment: it has no end.
        self._poses.set_offsets(offsets)
        placed = self._poses.read()
        with server.atomic():
            # The default lights alone are bright enough: with all of the environment's light, colours fade to white.
            server.scene.configure_environment_map("warehouse", environment_intensity=_ENVIRONMENT_LIGHT)
            self._root = server.scene.add_frame(_ROOT, show_axes=False)
            self._frames: InstanceBatch | None = None
            if placed is not None:
                for index, (group, shown_in) in enumerate(zip(groups, envs, strict=True)):
                    self._add_group(index, group, shown_in, placed)
                self._frames = self._add_frames(len(groups), placed)
                self.show_frames(False)
            for index, shape in enumerate(ground if len(env_ids) else ()):
                self._add_ground(f"ground_{index}", shape, is_spread)
            self._deformables = ViserDeformables(server, _ROOT, provider, scene, env_ids, offsets)
            self._handles += self._deformables.handles
            self._markers = ViserMarkers(server, f"{_ROOT}/markers", env_ids, offsets)
            self.contacts = ViserContacts(server, f"{_ROOT}/contacts", provider, scene, env_ids, offsets)
            self.groups = {group: group in _DRAWN_GROUPS for group in sorted({group for group, _ in self._handles})}
            for group, is_shown in self.groups.items():
                self.show_group(group, is_shown)

    @property
    def instance_count(self) -> int:
        """Instances of shapes that are shown, over all environments."""
        return int(self._poses.starts[-2])

    @property
    def shows_frames(self) -> bool:
        """Whether the frames of the bodies are shown."""
        return self._frames is not None and self._frames.handle.visible

    def update(self) -> None:
        """Send what has moved."""
        with self._provider.consistent_read():
            placed = self._poses.read()
            self._deformables.read()
            self.contacts.read()
        with self._server.atomic():
            if placed is not None:
                for batch in self._batches:
                    batch.place(placed)
            self._deformables.send()
            self.contacts.send()
            self._update_terrains()

    def show_colors(self, colors: NDArray[np.float32] | None) -> None:
        """Show shapes in these colours, RGBA `(N, S, 4)`; None is the model's. What has a texture stays as it is."""
        if not self._colors.change(colors):
            return
        with self._server.atomic():
            for handle, instances, envs in self._painted:
                _paint(handle, self._colors.of(instances.shapes, envs))
            for handle, shape in self._grounds:
                for name, colour in self._ground_colours(shape).items():
                    if colour != getattr(handle, name):
                        setattr(handle, name, colour)

    def show_markers(self, geometry: PackedGeometry | None) -> None:
        """Show extra geometry, in place of what was shown before."""
        self._markers.show(geometry)

    def show_group(self, group: int, is_shown: bool) -> None:
        """Show or hide a visibility group."""
        self.groups[group] = is_shown
        for member, part in self._handles:
            if member == group:
                self._show(part, is_shown)

    def show_frames(self, is_shown: bool) -> None:
        """Show or hide the frames of the bodies."""
        if self._frames is not None:
            self._show(self._frames, is_shown)

    def remove(self) -> None:
        """Take everything out of the server again."""
        self._root.remove()
        self._handles.clear()
        self._batches.clear()
        self._terrains.clear()
        self._painted.clear()
        self._grounds.clear()

    def _show(self, part: Any, is_shown: bool) -> None:
        if isinstance(part, InstanceBatch):
            self._poses.show(part.index, is_shown)
            part = part.handle
        part.visible = is_shown

    def _add_group(self, index: int, group: InstanceGroup, envs: NDArray[np.int64], placed: PlacedInstances) -> None:
        name = f"{_ROOT}/{group.name}"
        rows = slice(*self._poses.starts[index : index + 2])
        positions, wxyz = placed.positions[rows], placed.wxyz[rows]
        scales = np.tile(np.array(group.instances.scales, dtype=np.float32), (len(envs), 1))
        if group.skin is not None:
            handle = self._server.scene.add_batched_glb(
                name, _glb(group.skin), wxyz, positions, batched_scales=scales, lod="off"
            )
        else:
            rgba = self._colors.of(group.instances.shapes, envs)
            handle = self._server.scene.add_batched_meshes_simple(
                name,
                group.surface.points,
                group.surface.faces,
                wxyz,
                positions,
                batched_scales=scales,
                batched_colors=colour_bytes(rgba[:, :3]),
                batched_opacities=rgba[:, 3].copy() if (rgba[:, 3] < 1.0).any() else None,
                lod="off",
                side="double" if group.is_plane else "front",
            )
            self._painted.append((handle, group.instances, envs))
        batch = InstanceBatch(handle, index, rows, scales)
        self._handles.append((group.group, batch))
        self._batches.append(batch)
        if group.height_field is not None:
            self._terrains.append((group, handle))

    def _add_frames(self, index: int, placed: PlacedInstances) -> InstanceBatch:
        """A frame at each body."""
        rows = slice(*self._poses.starts[index : index + 2])
        length = _FRAME_LENGTH * self._scene.extent
        handle = self._server.scene.add_batched_axes(
            f"{_ROOT}/frames",
            placed.wxyz[rows],
            placed.positions[rows],
            axes_length=length,
            axes_radius=0.04 * length,
        )
        batch = InstanceBatch(handle, index, rows, np.ones((rows.stop - rows.start, 3), np.float32))
        self._batches.append(batch)
        return batch

    def _update_terrains(self) -> None:
        """Send the height fields whose data was changed."""
        changed = self._height_fields.changed() if self._terrains else {}
        for group, handle in self._terrains:
            if group.height_field in changed:
                terrain = with_height_field(self._scene, group, changed[group.height_field])
                if terrain.skin is not None:
                    handle.glb_data = _glb(terrain.skin)
                else:
                    send_update(handle, vertices=np.ascontiguousarray(terrain.surface.points))

    def _add_ground(self, name: str, shape: ShapeDescription, is_spread: bool) -> None:
        """A plane of one colour, with the lines of a grid."""
        width, height = 2.0 * shape.size[:2]
        is_endless = is_spread or not (width > 0.0 and height > 0.0)
        x, y, z, w = shape.quaternion
        handle = self._server.scene.add_grid(
            f"{_ROOT}/{name}",
            width=width or 1.0,
            height=height or 1.0,
            infinite_grid=bool(is_endless),
            cell_size=1.0,
            section_size=5.0,
            **self._ground_colours(shape),
            position=tuple(shape.position),
            wxyz=(w, x, y, z),
        )
        self._handles.append((shape.group, handle))
        self._grounds.append((handle, shape))

    def _ground_colours(self, shape: ShapeDescription) -> dict[str, Any]:
        """Colours of the one ground that all environments share: those of the first of them."""
        rgba = self._colors.of((shape,), self._env_ids[:1])[0]
        colour, opacity = rgba[:3], float(rgba[3])
        line = tuple(colour_bytes(colour + (0.12 if colour.mean() < 0.5 else -0.12)))
        return {
            "plane_color": tuple(colour_bytes(colour)),
            "plane_opacity": opacity,
            "cell_color": line,
            "section_color": line,
        }


def _is_ground(scene: SceneDescription, shape: ShapeDescription) -> bool:
    """Whether a shape is a plane of one colour that stands still."""
    if shape.type is not ShapeType.PLANE or shape.body != 0 or shape.rgba[3] == 0.0:
        return False
    return shape.material is None or not scene.materials[shape.material].textures.keys() & {"rgb", "rgba"}


def _paint(handle: Any, rgba: NDArray[np.float32]) -> None:
    """Send colours, `(K, 4)`, and opacities, where they are news: a page builds the mesh anew for other opacities."""
    colours = colour_bytes(rgba[:, :3])
    if not np.array_equal(colours, handle.batched_colors):
        send_update(handle, batched_colors=colours)
    shown = handle.batched_opacities
    if (rgba[:, 3] != (1.0 if shown is None else shown)).any():
        send_update(handle, batched_opacities=rgba[:, 3].copy())


def _glb(skin: Skin) -> bytes:
    """A surface with its texture, as a binary glTF file."""
    material = skin.material
    look = PBRMaterial(
        baseColorTexture=Image.fromarray(np.ascontiguousarray(skin.pixels)),
        baseColorFactor=colour_bytes(skin.rgba),
        roughnessFactor=material.roughness if material.roughness >= 0.0 else 1.0 - 0.5 * material.shininess,
        metallicFactor=max(material.metallic, 0.0),
        alphaMode="BLEND" if skin.rgba[3] < 1.0 or skin.pixels.shape[-1] == 4 else "OPAQUE",
    )
    # Equal arrays are stored once in the file, and a page shows nothing of a unit sphere whose normals are its points.
    normals = np.nextafter(skin.surface.normals, np.float32(0.0))
    mesh = Trimesh(
        skin.surface.points,
        skin.surface.faces,
        vertex_normals=normals,
        visual=TextureVisuals(uv=skin.texcoords, material=look),
        process=False,
    )
    with io.BytesIO() as file:
        mesh.export(file, file_type="glb", include_normals=True)
        return file.getvalue()
