"""Makes the pictures of the documents: `make pictures`. Needs Debian's chromium.

The page is shown by a real browser after a fixed story of clicks (its queries are random, as always); the figures are
those of `onoff reproduce` and `onoff demo`.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from onoff.apps.cli.study import SEED
from onoff.apps.demo.run import Demonstration, demonstrate
from onoff.apps.page.state import LOCKED
from onoff.apps.plots import reproduce

PICTURES = Path(__file__).parent / "pictures"
README = Path(__file__).parents[1] / "README.md"
TABLE = "| client | messages a request | bytes a request | guessed before | guessed after |"
ONOFF = Path(sys.executable).with_name("onoff")
STORY = (  # after the stream with which the page opens; of two favourites, the next request tells which one was private
    *(("business", False), ("politics", True), ("technology", False), ("health", False), ("science", False)),
    *(("sports", True), ("culture", False), ("business", False), ("politics", False)),
)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        for file in reproduce(Path(name)):
            if file.suffix == ".png":
                keep(file.read_bytes(), file.name)
    result = demonstrate(150, SEED)
    keep(guesses(result), "guesses.png")
    write_table(result)
    command = [ONOFF, "page", "--no-open", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running, sync_playwright() as playwright:
        try:
            url = re.search(r"http://\S+", running.stdout.readline()).group()
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
            page = opened(browser, url, width=1280, height=1000)
            tell(page)
            end = page.locator("#sensitive").bounding_box()
            clip = {"x": 0, "y": 0, "width": 1280, "height": end["y"] + end["height"] + 18}
            keep(page.screenshot(clip=clip, full_page=True), "page-light.png")
            page.click("#theme")
            page.mouse.move(0, 0)
            keep(page.screenshot(full_page=True), "page-dark.png")
            page.click("#theme")
            page.click("#tab-both")
            expect(page.locator("#queue")).to_contain_text("waits for the next", timeout=60_000)
            expect(page.locator(".belief")).to_have_count(3, timeout=60_000)
            page.mouse.move(0, 0)
            end = page.locator("section").nth(2).bounding_box()
            clip = {"x": 0, "y": 0, "width": 1280, "height": end["y"] + end["height"] + 18}
            keep(page.screenshot(clip=clip, full_page=True), "page-both.png")
            keep(opened(browser, url, width=390, height=1900).screenshot(), "page-phone.png")
            browser.close()
        finally:
            running.terminate()


def write_table(result: Demonstration) -> None:
    """Write the table of the README from the run of the picture."""
    text = README.read_text()
    begin = text.index(TABLE)
    end = text.index("\n\n", begin)
    lines = [TABLE, "|---|---|---|---|---|"]
    for row in result.switched:
        name = row.client if row.promise is None else f"onoff, `{row.promise}`"
        shares = [f"{100 * share:.0f} %" for share in (row.guessed_before, row.guessed)]
        lines.append(f"| {' | '.join([name, f'{row.messages:.1f}', f'{row.bytes:,.0f}', *shares])} |")
    README.write_text(text[:begin] + "\n".join(lines) + text[end:])
    print(f"{README}: its table")


def guesses(result: Demonstration) -> bytes:
    """How many private requests the server guesses right before and after it has seen everything, for each client."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(reversed(result.switched)):
        before, after = 100 * row.guessed_before, 100 * row.guessed
        leaks = row.guessed > row.guessed_before + 1e-9
        axes.barh(place + 0.19, before, 0.36, color="#b9c4d0")
        axes.barh(place - 0.19, after, 0.36, color="#d55e00" if leaks else "#0072b2")
        axes.text(after + 1, place - 0.19, f"{after:.0f} %", va="center", fontsize=9)
    axes.axvline(100 * result.by_habits, color="0.3", linestyle="--", linewidth=1)
    axes.text(100 * result.by_habits + 0.6, len(result.switched) - 0.45, "habits alone", fontsize=8, color="0.3")
    names = [f"{row.client}\n{row.messages:.1f} messages a request" for row in reversed(result.switched)]
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_xlim(0, 108)
    axes.set_xlabel("private requests that the server guesses right, %: before it (grey), after everything (colour)")
    axes.spines[["top", "right"]].set_visible(False)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()


def opened(browser: Browser, url: str, width: int, height: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light", reduced_motion="reduce")
    page.goto(url)
    expect(page.locator("#cost .curve.both")).to_be_visible(timeout=60_000)
    expect(page.locator(".belief")).to_have_count(3 if width > 640 else 2, timeout=60_000)
    return page


def tell(page: Page) -> None:
    """Click the story, each step made before the next click."""
    for source, private in STORY:
        made = int(page.locator("#steps td").first.inner_text())
        if (page.locator("#privacy").get_attribute("aria-checked") == "true") != private:
            page.click("#privacy")
        page.click(f".card[title={source}]")
        expect(page.locator("#steps tr:not(.pending) td").first).to_have_text(str(made + 1))
    page.mouse.move(0, 0)
    hidden = [i for i, (source, private) in enumerate(STORY) if private or source == LOCKED]
    expect(page.locator(f".belief[data-step='{made + 1 - len(STORY) + 1 + hidden[-1]}']")).to_be_visible()
    expect(page.locator("#cost .point.both")).to_have_count(8, timeout=60_000)


def keep(png: bytes, name: str) -> None:
    """Write a picture with at most 256 colours: a third of the size, and nobody sees it."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(PICTURES / name, optimize=True)
    print(f"{PICTURES / name}: {image.width} x {image.height}, {(PICTURES / name).stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
