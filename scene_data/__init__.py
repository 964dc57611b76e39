"""One Warp-native read path from physics to every renderer and viewer."""
