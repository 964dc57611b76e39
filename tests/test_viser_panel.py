"""The panel of the viser page, clicked in a real browser while a simulation runs."""

import threading
from collections.abc import Iterator

import mujoco
import pytest

viser = pytest.importorskip("viser")

from browser import CHROMIUM, Browser, Page  # noqa: E402
from listening import wait_until  # noqa: E402
from viser_rig import XML, nodes, open_context, viewer_of  # noqa: E402

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")

_BUTTON = "[...document.querySelectorAll('button')].find(each => each.innerText.trim() === {text!r})"
# The input that stands beside a label.
_INPUT = """(() => {{
  let place = [...document.querySelectorAll('label, div, span')].filter(each => each.innerText === {label!r}).pop();
  while (place && !place.querySelector('input')) place = place.parentElement;
  return place && place.querySelector('input');
}})()"""


class Panel:
    """What a person does with the panel."""

    def __init__(self, page: Page):
        self._page = page
        page.wait_until("document.body && document.body.innerText.includes('environments')", 90.0)
        page.evaluate("document.querySelectorAll('[class*=Notification-close]').forEach(each => each.click())")

    def click(self, text: str) -> None:
        self._page.wait_until(f"(button => button && !button.disabled)({_BUTTON.format(text=text)})")
        self._page.evaluate(f"{_BUTTON.format(text=text)}.click()")

    def tick(self, label: str) -> None:
        self._page.evaluate(f"{_INPUT.format(label=label)}.click()")

    def choose(self, label: str, option: str) -> None:
        self._page.evaluate(f"{_INPUT.format(label=label)}.click()")
        found = f"[...document.querySelectorAll('[role=option]')].find(each => each.innerText.trim() === {option!r})"
        self._page.wait_until(found + " && true")
        self._page.evaluate(f"{found}.click()")

    def type(self, label: str, text: str) -> None:
        self._page.evaluate(
            f"""(input => {{
              Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(input, {text!r});
              input.dispatchEvent(new Event('input', {{bubbles: true}}));
            }})({_INPUT.format(label=label)})"""
        )


class Training:
    """A simulation that another thread steps as long as it may."""

    def __init__(self, sim):
        self.sim = sim
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.sim.step()

    def end(self) -> None:
        self._stop.set()
        viewer_of(self.sim)._panel.set_paused(False)
        self._thread.join(20.0)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple]:
    model = mujoco.MjModel.from_xml_string(XML)
    with open_context(model, num_envs=3, env_spacing=2.0, update_frequency=30.0, speed=1.0) as sim:
        training = Training(sim)
        browser = Browser(800, 700)
        try:
            page = browser.page(viewer_of(sim).url)
            yield sim, viewer_of(sim), Panel(page)
            page.close()
        finally:
            browser.close()
            training.end()


def test_pause_step_play_reset_and_speed(opened):
    sim, viewer, panel = opened
    time_ns = sim.simulation_time_ns
    wait_until(lambda: sim.simulation_time_ns > time_ns, "the training runs")
    panel.click("Pause")
    wait_until(lambda: viewer._panel.is_paused, "it is paused")
    paused_ns = _rest(sim)
    for step in (1, 2):
        panel.click("Step")
        wait_until(lambda: sim.simulation_time_ns > paused_ns + (step - 1) * 10_000_000, "a step")  # noqa: B023
        assert _rest(sim) == paused_ns + step * 10_000_000, "one step for each click"
    panel.choose("Speed", "1/4")
    wait_until(lambda: viewer.real_time_factor() == 0.25, "the speed that was chosen")
    panel.choose("Speed", "max")
    wait_until(lambda: viewer.real_time_factor() is None, "no speed limit")
    panel.choose("Speed", "1/10")
    panel.click("Play")
    wait_until(lambda: sim.simulation_time_ns > paused_ns + 20_000_000, "it goes on")
    panel.click("Pause")
    wait_until(lambda: viewer._panel.is_paused, "it is paused again")
    before_ns = sim.simulation_time_ns
    panel.click("Reset")
    wait_until(lambda: sim.simulation_time_ns < before_ns, "the time starts anew, also while paused")
    panel.click("Play")
    wait_until(lambda: not viewer._panel.is_paused, "it goes on")


def _rest(sim) -> int:
    """The simulation time once it stands still [ns]."""
    seen: list[int] = []
    wait_until(lambda: seen.append(sim.simulation_time_ns) or seen[-20:] == seen[-1:] * 20, "the time stands still")
    return seen[-1]


def test_groups_frames_contacts_and_environments(opened):
    _, viewer, panel = opened
    hidden = {name for name, handle in nodes(viewer).items() if name.count("/") == 3 and not handle.visible}
    assert hidden
    panel.tick("Group 3")
    wait_until(lambda: all(nodes(viewer)[name].visible for name in hidden), "the group was switched on")
    panel.tick("Body frames")
    wait_until(lambda: viewer._scene.shows_frames, "frames are shown")
    panel.tick("Contacts")
    wait_until(lambda: viewer._scene.contacts.is_shown, "contacts are shown")
    before = viewer._scene
    panel.type("Environments", "2, 0-")
    panel.type("Environments", "2, 0")
    wait_until(lambda: viewer._scene is not before, "the scene is sent anew")
    assert viewer.env_ids.tolist() == [2, 0], "the chosen environments, in their order"
    # The viewer's thread switches these one after the other, as soon as the new scene is there.
    wait_until(lambda: viewer._scene.groups[3], "the group is shown as before")
    wait_until(lambda: viewer._scene.shows_frames, "frames are shown as before")
    wait_until(lambda: viewer._scene.contacts.is_shown, "contacts are shown as before")
