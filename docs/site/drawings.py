# SPDX-License-Identifier: Apache-2.0
"""The animated drawings of the page on engines: a heap, a wheel, wheels of wheels, the hybrid.

Each drawing is a sequence of steps. An object has a place, an opacity and a colour at each step, and
CSS moves it from one step to the next; a caption says what happens. Where the reader has asked for
less motion, one step stands still and the captions are a list below. Colours are those of the page,
light or dark. The structures are simulated, not drawn by hand: what moves is what would move.
"""

import html

WIDTH = 480
SECONDS_PER_STEP = 2.6

STYLE = """
.{p} {{ width: 100%; max-width: 44rem; height: auto; display: block; margin: 1rem auto;
  --ink: var(--md-default-fg-color, #222); --soft: var(--md-default-fg-color--lightest, #ccc);
  --live: var(--verge-live, #2a6fbb); --move: var(--verge-move, #c06a00);
  --dead: #868686; --fire: var(--verge-fire, #b3261e); }}
.{p} text {{ font: 12px var(--md-text-font-family, sans-serif); fill: var(--ink); text-anchor: middle; }}
.{p} .on {{ fill: #fff; font-weight: 600; }}
.{p} .small {{ font-size: 10px; }}
.{p} .left {{ text-anchor: start; }}
.{p} .caption {{ font-size: 14px; }}
.{p} .line {{ stroke: var(--soft); stroke-width: 1.5; fill: none; }}
.{p} .cell {{ stroke: var(--dead); stroke-width: 1; fill: none; }}
.{p} .hand {{ stroke: var(--fire); stroke-width: 2.5; }}
.{p} g[data-o] {{ animation-duration: {seconds:.1f}s; animation-iteration-count: infinite;
  animation-timing-function: ease-in-out; }}
.{p}:hover g[data-o] {{ animation-play-state: paused; }}
@media (prefers-reduced-motion: reduce) {{ .{p} g[data-o] {{ animation: none !important; }} }}
"""

FILL = {"live": "var(--live)", "move": "var(--move)", "dead": "var(--dead)", "fire": "var(--fire)"}


class Drawing:
    def __init__(self, name, title, height, still):
        self.name, self.title, self.height, self.still = name, title, height, still
        self.captions, self.objects, self.fixed = [], {}, []

    def step(self, caption, states):
        """states: object -> (x, y, colour); an object that is not there is invisible."""
        at = len(self.captions)
        self.captions.append(caption)
        for key, state in states.items():
            self.objects.setdefault(key, {})[at] = state

    def svg(self):
        steps = len(self.captions)
        out, css = [], [STYLE.format(p=self.name, seconds=steps * SECONDS_PER_STEP)]
        shapes = "".join(self.fixed)
        for n, (key, states) in enumerate(self.objects.items()):
            css.append(self.keyframes(n, states, steps))
            x, y, colour = states.get(self.still, states[min(states)])
            visible = 1 if self.still in states else 0
            out.append(
                f'<g data-o style="animation-name:{self.name}-{n};opacity:{visible};'
                f'transform:translate({x:.1f}px,{y:.1f}px);fill:{FILL[colour]}">{self.shape(key)}</g>')
        for i, caption in enumerate(self.captions):
            css.append(self.caption_keyframes(i, steps))
            out.append(
                f'<g data-o style="animation-name:{self.name}-c{i};opacity:{int(i == self.still)}">'
                f'<text class="caption" x="{WIDTH / 2}" y="20">{html.escape(caption)}</text></g>')
        label = html.escape(self.title)
        return (f'<svg class="{self.name}" viewBox="0 0 {WIDTH} {self.height}" role="img" '
                f'aria-label="{label}" xmlns="http://www.w3.org/2000/svg"><title>{label}</title>'
                f'<style>{"".join(css)}</style>{shapes}{"".join(out)}</svg>')

    def steps_as_list(self):
        return "\n".join(f"{i + 1}. {c}" for i, c in enumerate(self.captions))

    def shape(self, key):
        kind, text = key[0], html.escape(str(key[1]))
        if kind == "timer":
            return f'<circle r="13"/><text class="on" y="4">{text}</text>'
        if kind == "dot":
            return f'<circle r="9"/><text class="on small" y="3.5">{text}</text>'
        if kind == "entry":
            return f'<rect x="-12" y="-8" width="24" height="16" rx="3"/>' \
                   f'<text class="on small" y="3.5">{text}</text>'
        if kind == "word":
            return f'<rect x="-34" y="-11" width="68" height="22" rx="4"/>' \
                   f'<text class="on small" y="4">{text}</text>'
        if kind == "now":
            return '<path d="M0 -7 L6 4 L-6 4 Z"/>'
        raise ValueError(kind)

    def keyframes(self, n, states, steps):
        frames = []
        last = states[min(states)]
        for i in range(steps):
            here = states.get(i)
            if here is not None:
                last = here
            nearest = here or next((states[j] for j in range(i, steps) if j in states), last)
            x, y, colour = here or (nearest if i < min(states) else last)
            body = (f"opacity:{1 if here else 0};transform:translate({x:.1f}px,{y:.1f}px);"
                    f"fill:{FILL[colour]}")
            frames.append(f"{100 * i / steps:.2f}%,{100 * (i + 0.62) / steps:.2f}%{{{body}}}")
        return f"@keyframes {self.name}-{n}{{{''.join(frames)}}}"

    def caption_keyframes(self, i, steps):
        if steps == 1:
            return ""
        a, b = 100 * i / steps, 100 * (i + 0.85) / steps
        before = f"{max(a - 2, 0):.2f}%{{opacity:0}}" if i else ""
        after = f"{min(b + 2, 100):.2f}%,100%{{opacity:0}}"
        start = "0%{opacity:0}" if i else ""
        return f"@keyframes {self.name}-c{i}{{{start}{before}{a:.2f}%,{b:.2f}%{{opacity:1}}{after}}}"


# ---- A heap --------------------------------------------------------------------------------------


def heap():
    d = Drawing("verge-heap", "A 4-ary heap as timers are started, stopped and fire", 250, 3)
    at = [(240, 62)] + [(66 + 116 * i, 130) for i in range(4)] + \
         [(66 + 116 * (i // 4) + 27 * (i % 4) - 40, 200) for i in range(16)]
    d.fixed += [f'<path class="line" d="M{at[(i - 1) // 4][0]} {at[(i - 1) // 4][1]} L{x} {y}"/>'
                for i, (x, y) in enumerate(at[:13]) if i]
    times = [12, 20, 15, 31, 18, 40, 27, 33, 52, 16]

    def show(caption, moved=(), fired=(), extra=()):
        states = {("timer", t): (*at[i], "move" if t in moved else "live")
                  for i, t in enumerate(times)}
        for t, place in extra:
            states[("timer", t)] = (*place, "fire" if t in fired else "dead")
        d.step(caption, states)

    def up(i):
        while i and times[(i - 1) // 4] > times[i]:
            times[i], times[(i - 1) // 4] = times[(i - 1) // 4], times[i]
            i = (i - 1) // 4
            yield

    def down(i):
        while 4 * i + 1 < len(times):
            least = min(range(4 * i + 1, min(4 * i + 5, len(times))), key=times.__getitem__)
            if times[least] >= times[i]:
                return
            times[i], times[least] = times[least], times[i]
            i = least
            yield

    show("The earliest timer is the root: when to sleep until.")
    times.append(9)
    show("start(9): at the end,", moved=[9])
    for _ in up(len(times) - 1):
        show("and up, past each later parent: log n steps,", moved=[9])
    show("under the lock of the heap. Every thread wants it.", moved=[9])
    gone = times.index(20)
    times[gone] = times.pop()
    show("stop(20): the last timer fills its place, and sinks.", moved=[times[gone]],
         extra=[(20, (at[gone][0], at[gone][1] - 30))])
    for _ in down(gone):
        show("Another log n steps, under the lock, for a timer that never fired.")
    root, times[0] = times[0], times.pop()
    moving = times[0]
    show("9 is due: it fires, the last becomes the root,", moved=[moving], fired=[root],
         extra=[(root, (300, 62))])
    for _ in down(0):
        show("and sinks again.", moved=[moving])
    return d


# ---- A wheel -------------------------------------------------------------------------------------


def wheel():
    import math
    d = Drawing("verge-wheel", "A wheel of sixteen buckets: constant time, to the tick", 300, 2)
    cx, cy, inner, outer = 240, 165, 50, 122

    def place(slot, rank):
        angle = 2 * math.pi * (slot + 0.5) / 16 - math.pi / 2
        r = inner + 17 + 21 * rank
        return cx + r * math.cos(angle), cy + r * math.sin(angle)

    for s in range(16):
        a = 2 * math.pi * s / 16 - math.pi / 2
        d.fixed.append(f'<path class="cell" d="M{cx + inner * math.cos(a):.1f} '
                       f'{cy + inner * math.sin(a):.1f} L{cx + outer * math.cos(a):.1f} '
                       f'{cy + outer * math.sin(a):.1f}"/>')
    d.fixed.append(f'<circle class="cell" cx="{cx}" cy="{cy}" r="{inner}"/>'
                   f'<circle class="cell" cx="{cx}" cy="{cy}" r="{outer}"/>')
    timers = {3: 0, 5: 0, 7: 0, 11: 0}

    def show(now, caption, colours=(), fired=()):
        colours, ranks, states = dict(colours), {}, {}
        for t in timers:
            rank = ranks[t % 16] = ranks.get(t % 16, -1) + 1
            states[("dot", t)] = (*place(t % 16, rank), colours.get(t, "live"))
        for i, t in enumerate(fired):
            states[("dot", t)] = (cx - 12 + 22 * i, cy, "fire")
        angle = 2 * math.pi * (now % 16 + 0.5) / 16 - math.pi / 2
        states[("now", "")] = (cx + (inner - 8) * math.cos(angle), cy + (inner - 8) * math.sin(angle),
                               "fire")
        d.step(caption, states)

    show(2, "A bucket for each tick; a hand at the present one.")
    timers[12] = 0
    show(2, "start(12): into bucket 12. Constant time, however many.", [(12, "move")])
    del timers[5]
    show(2, "stop(5): out of its list. Constant time.")
    del timers[3]
    show(3, "At each tick the hand moves, and its bucket fires,", fired=[3])
    show(5, "also when there is nothing in it: the thread wakes.")
    del timers[7]
    show(7, "A timer may be late by a tick: the bucket knows no more.", fired=[7])
    timers[27] = 0
    show(8, "And 27, beyond the rim? In bucket 11 it would fire early.", [(27, "move")])
    return d


# ---- Wheels of wheels ----------------------------------------------------------------------------


def cells(d, x, y, labels, width=38, height=34):
    for i, label in enumerate(labels):
        d.fixed.append(f'<rect class="cell" x="{x + width * i}" y="{y}" width="{width}" '
                       f'height="{height}"/><text class="small" x="{x + width * (i + 0.5)}" '
                       f'y="{y + height + 12}">{label}</text>')


def wheels():
    d = Drawing("verge-wheels", "Wheels of wheels: timers move down a level as they come near", 250, 4)
    rows = {0: 186, 1: 116, 2: 46}
    x0, width = 116, 42
    for level, size in ((2, 64), (1, 8), (0, 1)):
        cells(d, x0, rows[level], [f"{size * i}" if level else f"+{i}" for i in range(8)], width)
        d.fixed.append(f'<text class="left small" x="6" y="{rows[level] + 15}">level {level}:</text>'
                       f'<text class="left small" x="6" y="{rows[level] + 29}">'
                       f'{size} tick{"s" if size > 1 else ""} each</text>')
    timers = [5, 13, 21, 70, 75]

    def show(now, caption, moved=(), fired=(), dead=()):
        taken, states = {}, {}
        for t in sorted(timers):
            if t // 8 == now // 8:
                key = (0, t % 8)
            elif t // 64 == now // 64:
                key = (1, t // 8 % 8)
            else:
                key = (2, t // 64 % 8)
            rank = taken[key] = taken.get(key, -1) + 1
            x = x0 + width * (key[1] + 0.5) + (10 if rank else (-10 if key == (2, 1) else 0))
            states[("dot", t)] = (x, rows[key[0]] + 17,
                                  "move" if t in moved else "dead" if t in dead else "live")
        for t in fired:
            states[("dot", t)] = (x0 + width * (t % 8 + 0.5), rows[0] - 12, "fire")
        states[("now", "")] = (x0 + width * (now % 8 + 0.5), rows[0] + 38 + 18, "fire")
        d.step(caption, states)

    show(1, "Near timers on fine buckets, far ones on coarse.")
    timers.append(17)
    show(1, "start(17): the first level that reaches it. Constant time.", [17])
    timers.remove(5)
    show(5, "5 is due: level 0 fires.", fired=[5])
    show(8, "Tick 8: the bucket 8..15 comes due, and 13 moves down.", [13])
    timers.remove(13)
    show(13, "13 fires.", fired=[13])
    show(16, "Tick 16: 17 and 21 move down.", [17, 21])
    timers.remove(17)
    show(17, "No limit, no wake-up for empty buckets; still to the tick,", fired=[17])
    timers.remove(21)
    show(64, "and with a lock around it. Most timers never get here.", [70, 75])
    return d


# ---- The hybrid ----------------------------------------------------------------------------------


def hybrid():
    d = Drawing("verge-hybrid", "The hybrid engine: entries in a wheel, words in timers", 330, 3)
    rows = {2: 50, 1: 112, 0: 174}
    x0, width = 10, 36
    for level, size in ((2, "268 ms"), (1, "4 ms"), (0, "65 us")):
        cells(d, x0, rows[level], [""] * 8, width, 36)
        d.fixed.append(f'<text class="left small" x="{x0}" y="{rows[level] - 5}">level {level}: slots '
                       f'of {size}</text>')
    d.fixed.append(f'<rect class="cell" x="{x0}" y="248" width="{8 * width}" height="62" rx="6"/>'
                   f'<text class="left small" x="{x0}" y="242">near heap: exact order, the next few'
                   f'</text><text class="small" x="392" y="45">the timers themselves</text>')
    words = {"a": 75, "b": 125, "c": 175, "d": 225}
    entry = {"a": (2, 1), "b": (1, 3), "c": (1, 5), "d": (2, 4)}
    due = {"a": "3 s", "b": "90 ms", "c": "95 ms", "d": "2 s"}

    def cell(level, slot, rank=0):
        return x0 + width * (slot + 0.5), rows[level] + 11 + 17 * rank

    def show(caption, colours=(), entries=(), in_heap=(), fired=()):
        colours, entries, states, used = dict(colours), dict(entries), {}, {}
        for t, y in words.items():
            states[("word", f"{t}: {due[t]}")] = (392, y, colours.get(t, "live"))
        for t, place in entry.items():
            if place is None:
                continue
            if t in in_heap:
                x, y = x0 + 50 + 60 * list(in_heap).index(t), 280
            else:
                rank = used[place] = used.get(place, -1) + 1
                x, y = cell(*place, rank)
            states[("entry", t)] = (x, y, entries.get(t, "live"))
        for t in fired:
            states[("entry", t)] = (340, 280, "fire")
        d.step(caption, states)

    show("An entry in a slot says when to look at a timer.")
    due["d"] = "stopped"
    show("stop(d): one compare-and-swap on its word. No lock.", {"d": "dead"}, {"d": "dead"})
    due["a"] = "9 s"
    show("reset(a, later): the same. Its entry stays: it is early enough.", {"a": "move"})
    due["d"] = "5 s"
    show("start in d's memory: its old entry serves again. No lock.", {"d": "move"}, {"d": "move"})
    due["c"] = "stopped"
    show("Most timers end like this: never fired, never moved.", {"c": "dead"}, {"c": "dead"})
    entry["b"], entry["c"] = (0, 2), (0, 4)
    show("The time of a slot comes: entries move down,", {"c": "dead"}, {"b": "move", "c": "dead"})
    entry["c"] = None
    show("those of stopped timers are dropped,", {"c": "dead"}, {"b": "move"})
    show("and the last way is a small heap: exact to the nanosecond.", {"c": "dead"}, {"b": "move"},
         in_heap=["b"])
    entry["b"], due["b"] = None, "fired"
    show("b fires: its word is swapped from the very time found due.", {"b": "fire", "c": "dead"},
         fired=["b"])
    entry["a"] = (2, 6)
    show("a's entry is reached early, and moves on to 9 s.", {"b": "dead", "c": "dead"}, {"a": "move"})
    return d


ALL = {"heap": heap, "wheel": wheel, "wheels": wheels, "hybrid": hybrid}
