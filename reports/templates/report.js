"use strict";
(() => {
  const root = document.documentElement;
  const keep = (key, value) => { try { if (value === undefined) return localStorage.getItem(key); localStorage.setItem(key, value); } catch { /* no storage for this page */ } return null; };

  const theme = document.getElementById("theme");
  const modes = ["system", "dark", "light"];
  const paint = mode => { root.dataset.theme = mode; theme.textContent = `Theme: ${mode}`; };
  theme.hidden = false;
  paint(modes.includes(keep("crashcheck-theme")) ? keep("crashcheck-theme") : "system");
  theme.addEventListener("click", () => {
    const next = modes[(modes.indexOf(root.dataset.theme) + 1) % modes.length];
    keep("crashcheck-theme", next);
    paint(next);
  });

  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = button.previousElementSibling;
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        getSelection().selectAllChildren(code);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  const schedules = new Map();
  const set_up = sched => {
    const parts = document.getElementById("stepper").content.cloneNode(true);
    const board = parts.querySelector(".board");
    const stage = sched.querySelector(".stage");
    sched.insertBefore(parts.querySelector(".player"), stage);
    stage.prepend(board);
    if (sched.dataset.cache) board.querySelector("h4").firstElementChild.nextSibling.textContent = `${sched.dataset.cache} `;
    const marks = [...sched.querySelectorAll("svg.pic > g.s")];
    const rows = [...sched.querySelectorAll("tbody tr.r")];
    const said = sched.querySelector("output");
    const cursor = sched.querySelector(".cursor");
    const scroll = sched.querySelector(".scroll");
    const crash = sched.querySelector(".crash");
    const width = cursor.width.baseVal.value;
    const crash_x = cursor.x.baseVal.value + width / 2;
    const wrap = sched.querySelector(".tablewrap");
    const sites = sched.querySelectorAll(".sites > li");
    const site = sched.querySelector(".site");
    const last = marks.length + 1; /* the crash is at marks.length, the verdict of the check after it */
    const walk = sched.querySelector(".walk");
    const lines = [...sched.querySelectorAll(".walk .l[data-at]")].map(line => ({ line, note: line.querySelector("em"), steps: line.dataset.at.split(" ").map(Number) }));
    const columns = new Map([...board.querySelectorAll("section")].map(column => [column.dataset.c, column]));
    const spoken = new Map([...columns].map(([key, column]) => [key, column.querySelector("h4").firstElementChild.nextSibling.textContent.trim().toLowerCase()]));
    const glyphs = { cache: "#c", pending: "#w", durable: "#d", persisted: "#p", lost: "#l" };
    let at = last;
    const text = (row, of) => (row.querySelector(of)?.textContent ?? "").trim();
    /* Where the update of a mark is after step `now`; null for what is no update, or has not happened. */
    const phase = (mark, index, now) => {
      const { s, p, d } = mark.dataset;
      if (!s || index > now) return null;
      if (now >= marks.length) return s;
      return d !== undefined && Number(d) <= now ? "durable" : p !== undefined && Number(p) <= now ? "pending" : "cache";
    };
    const tally = now => {
      const found = new Map([...columns.keys()].map(key => [key, []]));
      marks.forEach((mark, index) => { found.get(phase(mark, index, now))?.push(index); });
      return found;
    };
    const number = index => text(rows[index], "td");
    const tell = index => {
      const row = rows[index];
      if (index === marks.length) return `Crash ${text(row, "td:last-child").replace("crash ", "")}`;
      if (index === last) return `Check: ${text(row, "td:last-child").replace("check ", "")}`;
      const parts = [text(row, ".what"), spoken.get(phase(marks[index], index, Math.min(index, at))), text(row, ".at")].filter(Boolean);
      return `Step ${number(index)}: ${parts.join(" · ")}`;
    };
    const SHOWN = 9;
    const set_out = now => {
      const found = tally(now);
      for (const [key, column] of columns) {
        const inside = found.get(key);
        column.querySelector("b").textContent = inside.length;
        column.classList.toggle("none", inside.length === 0);
        const rest = inside.length - SHOWN;
        const chips = inside.slice(-SHOWN).map(index => {
          const chip = document.createElement("li");
          const name = document.createElement("b");
          name.textContent = number(index);
          chip.append(name, " ");
          const tag = marks[index].querySelector(".badge")?.textContent;
          if (tag) { const pin = document.createElement("b"); pin.className = "tag"; pin.textContent = tag; chip.append(pin, " "); }
          chip.append(marks[index].dataset.l);
          chip.classList.toggle("fresh", index === now || marks[index].dataset.p === String(now) || marks[index].dataset.d === String(now));
          return chip;
        });
        if (rest > 0) { const more = document.createElement("li"); more.className = "more"; more.textContent = `and ${rest} before`; chips.unshift(more); }
        column.querySelector("ol").replaceChildren(...chips);
      }
      board.querySelector(".judged").hidden = now !== last;
      marks.forEach((mark, index) => {
        const where = phase(mark, index, now);
        mark.classList.toggle("open", where === "cache" || where === "pending");
        if (mark.dataset.s) mark.querySelector("use").setAttribute("href", glyphs[where ?? mark.dataset.s]);
      });
      for (const { line, note, steps } of lines) {
        const here = steps.includes(now);
        line.classList.toggle("now", here);
        line.classList.toggle("later", steps[0] > now);
        const latest = steps.filter(step => step <= now && step < marks.length).pop();
        line.dataset.phase = (latest === undefined ? null : phase(marks[latest], latest, now)) ?? "";
        if (steps.includes(marks.length) && now >= marks.length) note.textContent = "crash before this";
        else if (latest === undefined) note.textContent = "";
        else note.textContent = [`step ${number(latest)}`, spoken.get(line.dataset.phase)].filter(Boolean).join(": ");
      }
      const here = lines.find(each => each.line.classList.contains("now"))?.line;
      if (here && walk) {
        const top = here.offsetTop - walk.offsetTop;
        if (top < walk.scrollTop || top + 24 > walk.scrollTop + walk.clientHeight) walk.scrollTop = top - walk.clientHeight / 2;
      }
    };
    const counts = now => [...tally(now)].filter(([, inside]) => inside.length).map(([key, inside]) => `${spoken.get(key)} ${inside.length}`).join(", ");
    const say = index => {
      said.textContent = tell(index);
      const more = document.createElement("span");
      more.className = "vh";
      more.textContent = index === at ? `. Now ${counts(at) || "no update yet"}.` : "";
      said.append(more);
      site.replaceChildren(...(sites[rows[index].dataset.w]?.cloneNode(true).childNodes ?? []));
    };
    const show = (index, follow) => {
      at = Math.max(0, Math.min(last, index));
      const done = at >= marks.length;
      marks.forEach((mark, i) => { mark.classList.toggle("future", i > at); mark.classList.toggle("now", i === at); });
      rows.forEach((row, i) => {
        row.classList.toggle("now", i === at);
        row.classList.toggle("future", i > at);
        if (i === at) row.setAttribute("aria-current", "step"); else row.removeAttribute("aria-current");
      });
      sched.classList.toggle("replaying", !done);
      sched.dataset.at = at;
      crash.classList.toggle("future", !done);
      const x = done ? crash_x : Number(marks[at].dataset.x);
      cursor.x.baseVal.value = x - width / 2;
      set_out(at);
      say(at);
      for (const button of sched.querySelectorAll(".player button")) {
        const go = button.dataset.go;
        button.setAttribute("aria-disabled", String(go === "crash" ? at === marks.length : at === last ? go === "on" || go === "check" : at === 0 && (go === "first" || go === "back")));
      }
      if (!follow) return;
      const left = x - scroll.scrollLeft;
      if (left < 60 || left > scroll.clientWidth - 90) scroll.scrollLeft = x - scroll.clientWidth / 2;
      const row = rows[at];
      const head = wrap.querySelector("thead").offsetHeight;
      if (row.offsetTop - head < wrap.scrollTop) wrap.scrollTop = row.offsetTop - head;
      else if (row.offsetTop + row.offsetHeight > wrap.scrollTop + wrap.clientHeight) wrap.scrollTop = row.offsetTop + row.offsetHeight - wrap.clientHeight;
    };
    const moves = { first: () => 0, back: () => at - 1, on: () => at + 1, crash: () => marks.length, check: () => last };
    const keys = { ArrowLeft: "back", ArrowRight: "on", Home: "first", End: "check" };
    const table_keys = { ArrowUp: "back", ArrowDown: "on", ...keys };
    board.querySelector(".judged span").textContent = text(rows[last], "td:last-child").replace("check ", "");
    sched.addEventListener("click", event => {
      const button = event.target.closest("[data-go]");
      if (button) return show(moves[button.dataset.go](), true);
      const mark = marks.indexOf(event.target.closest("g.s"));
      const row = rows.indexOf(event.target.closest("tr.r"));
      if (mark >= 0) show(mark, false);
      else if (row >= 0 && !String(getSelection())) show(row, true);
      else if (event.target.closest(".crash")) show(marks.length, false);
      return undefined;
    });
    sched.addEventListener("keydown", event => {
      const move = (event.target.closest(".tablewrap") ? table_keys : keys)[event.key];
      if (!move || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("summary")) return;
      event.preventDefault();
      show(moves[move](), true);
    });
    marks.forEach((mark, i) => {
      mark.addEventListener("pointerenter", () => { say(i); rows[i].classList.add("over"); });
      mark.addEventListener("pointerleave", () => { say(at); rows[i].classList.remove("over"); });
    });
    rows.forEach((row, i) => {
      row.addEventListener("pointerenter", () => marks[i] && marks[i].classList.add("over"));
      row.addEventListener("pointerleave", () => marks[i] && marks[i].classList.remove("over"));
    });
    /* On a narrow screen the end is what matters: the crash, and as much before it as there is room for. */
    const names = sched.querySelector(".lanenames");
    scroll.addEventListener("scroll", () => names.setAttribute("transform", `translate(${scroll.scrollLeft} 0)`));
    show(at, false);
    const tagged = marks.find(mark => mark.querySelector(".badge"));
    const first = tagged ? Number(tagged.dataset.x) : crash_x;
    scroll.scrollLeft = Math.max(first - 70, Math.min(first - 24, crash_x + 90 - scroll.clientWidth));
    return show;
  };
  const ready = finding => {
    const sched = finding.querySelector(".sched");
    if (sched && !schedules.has(finding.id)) schedules.set(finding.id, set_up(sched));
    return schedules.get(finding.id);
  };
  /* Of a graph that is wider than the screen, A and B are at the end. */
  const show_pins = finding => {
    for (const graph of finding.querySelectorAll("svg.graph")) {
      const scroll = graph.closest(".scroll");
      const right = Math.max(...[...graph.querySelectorAll(".pin")].map(pin => pin.getBoundingClientRect().right));
      scroll.scrollLeft += Math.max(0, right + 12 - scroll.getBoundingClientRect().right);
    }
  };
  for (const finding of document.querySelectorAll("details.finding")) {
    const opened = () => { if (finding.open) { ready(finding); show_pins(finding); } };
    opened();
    finding.addEventListener("toggle", opened);
  }

  /* Findings and their entries in the index, by severity and by text. */
  const filter = document.querySelector(".index .filter");
  if (filter) {
    const level = filter.querySelector("select");
    const words = filter.querySelector("input");
    const shown = filter.querySelector("output");
    const entries = [...document.querySelectorAll(".index li")].map(entry => ({ entry, finding: document.getElementById(entry.dataset.for), text: (entry.textContent + " " + entry.closest("section").querySelector("h2").textContent).toLowerCase() }));
    const choose = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const { entry, finding, text } of entries) {
        const fits = (!level.value || finding.dataset.level === level.value) && wanted.every(word => text.includes(word) || finding.querySelector(".stack")?.textContent.toLowerCase().includes(word));
        entry.hidden = finding.hidden = !fits;
        count += fits;
      }
      for (const section of document.querySelectorAll(".index section")) section.hidden = !section.querySelector("li:not([hidden])");
      shown.textContent = count < entries.length ? `${count} of ${entries.length} shown` : "";
    };
    filter.hidden = false;
    level.addEventListener("change", choose);
    words.addEventListener("input", choose);
  }

  /* #f2 opens a finding; #f2s5 also goes to its fifth step. */
  const follow = () => {
    const match = /^#(f\d+)(?:s(\d+))?$/.exec(location.hash);
    const finding = match && document.getElementById(match[1]);
    if (!finding) return;
    finding.hidden = false; /* whatever the filter hides */
    finding.open = true;
    const show = ready(finding);
    if (match[2]) { show(Number(match[2]) - 1, true); finding.querySelector(".sched").scrollIntoView(); }
    else finding.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();

  addEventListener("beforeprint", () => {
    for (const finding of document.querySelectorAll("details.finding:not([open])")) { finding.dataset.folded = ""; finding.open = true; }
  });
  addEventListener("afterprint", () => {
    for (const finding of document.querySelectorAll("details[data-folded]")) { delete finding.dataset.folded; finding.open = false; }
  });
})();
