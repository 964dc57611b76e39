"""pytest plugin: `isaaclab.scene_data` and its submodules are ours; the rest of `isaaclab` stays what it is."""

import sys
from importlib import import_module

OURS = {
    "": "scene_data",
    ".scene_data_backend": "scene_data.backend",
    ".scene_data_provider": "scene_data.provider",
    ".deformable_discovery": "scene_data.deformable_discovery",
    ".deformable_vis_remap": "scene_data.deformable_vis_remap",
}

for suffix, module in OURS.items():
    sys.modules[f"isaaclab.scene_data{suffix}"] = import_module(module)
