"use strict";
// The page of metricforge ask.  All text of the data is set by textContent, never as HTML.

const token = location.hash.slice(1) || sessionStorage.getItem("metricforge-ask") || "";
if (location.hash) {
  sessionStorage.setItem("metricforge-ask", token);
  history.replaceState(null, "", location.pathname);
}
const byId = (id) => document.getElementById(id);
const FAR = 1; // standard deviations from which a difference is marked
const IN_LINEUP = 8; // columns of a card in a line-up before the others are folded
let current = null, busy = false, showEqual = false;
const replied = []; // when answers were given, for their rate

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name === "onclick") element.addEventListener("click", value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

async function call(path, body) {
  const options = { headers: { Authorization: `Bearer ${token}` } };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(found.error || `the server answered ${response.status}`);
  return found;
}

function say(text, error = false) {
  const message = byId("message");
  message.textContent = text;
  message.className = error ? "error" : "";
}

async function act(work) {
  if (busy) return;
  busy = true;
  try {
    await work();
  } catch (error) {
    const gone = error instanceof TypeError;
    say(gone ? "The program has stopped. Your answers are kept in the file; start it again to go on." : error.message, true);
  } finally {
    busy = false;
  }
}

// ---------------------------------------------------------------------------------------------------------- questions

const TITLES = {
  pair: "Are these two alike?",
  lineup: "Which of these is the first one like?",
  triplet: "Which of the two is the first one more like?",
};

function choices(question) {
  const skip = { keys: [" "], label: "Cannot say", key: "Space", answer: "skip" };
  if (question.kind === "pair") {
    return [
      { keys: ["u", "ArrowLeft"], label: "Unlike", key: "U", answer: "unlike" },
      { keys: ["a", "ArrowRight"], label: "Alike", key: "A", answer: "alike" },
      skip,
    ];
  }
  const places = question.cards.length - 1;
  const label = (place) => `${question.kind === "triplet" ? "More like" : "Like"} ${place}`;
  const answer = (place) => (question.kind === "triplet" ? (place === 1 ? "first" : "second") : place);
  const found = [];
  for (let place = 1; place <= places; place++) {
    found.push({ keys: [String(place)], label: label(place), key: String(place), answer: answer(place), main: true });
  }
  if (question.kind === "lineup") found.push({ keys: ["0"], label: "None of these", key: "0", answer: "none" });
  return [...found, skip];
}

function card(content, place, kind) {
  const head = kind !== "pair" && place === 0;
  const name = kind === "pair" ? (place === 0 ? "Left" : "Right") : head ? "This one" : String(place);
  const box = make("section", { class: head ? "card head" : "card", "aria-label": name }, make("h3", {}, name));
  if (content.image !== null) box.append(picture(content.image, name));
  const rows = (fields) => {
    const table = make("table");
    for (const field of fields) {
      const value = make("td", {}, field.text === "" ? "—" : field.text);
      if (field.place !== null) {
        const dot = make("i");
        dot.style.left = `${100 * field.place}%`;
        value.append(make("div", { class: "place", "aria-hidden": "true" }, dot));
      }
      // the first row of several differs from each of the others elsewhere: the marks are on their cards
      const far = !head && (field.difference >= FAR || (field.place === null && field.difference > 0));
      table.append(make("tr", far ? { class: "far" } : {}, make("th", { scope: "row" }, field.name), value));
    }
    return table;
  };
  // with several rows to compare with, the same columns are folded on every card, so that cells stay side by side
  const first = kind === "pair" ? content.fields.filter((field) => field.difference > 0) : content.fields.slice(0, IN_LINEUP);
  const rest = content.fields.filter((field) => !first.includes(field));
  if (first.length) box.append(rows(first));
  if (rest.length) {
    const folded = make("details", {}, make("summary", {}, kind === "pair" ? `${rest.length} equal` : `${rest.length} more`), rows(rest));
    folded.open = showEqual || !first.length;
    box.append(folded);
  }
  if (content.more) box.append(make("p", {}, `and ${content.more} more columns`));
  if (content.text) {
    const text = make("p", { class: "text" });
    for (const piece of content.text) text.append(piece.differs ? make("mark", {}, piece.text) : piece.text);
    box.append(text);
  }
  return box;
}

function picture(row, name) {
  const image = make("img", { alt: `picture of ${name}` });
  const frame = make("button", { type: "button", class: "zoom", "aria-pressed": "false", title: "full size, and back", onclick: () => {
    frame.setAttribute("aria-pressed", String(frame.classList.toggle("large")));
  } }, image);
  load(row, image);
  return frame;
}

function load(row, image) {
  fetch(`/api/image/${row}`, { headers: { Authorization: `Bearer ${token}` } })
    .then((response) => (response.ok ? response.blob() : Promise.reject()))
    .then((blob) => { image.src = URL.createObjectURL(blob); image.onload = () => URL.revokeObjectURL(image.src); })
    .catch(() => image.replaceWith(make("span", {}, "no picture")));
}

function show(state) {
  current = state.question;
  byId("title").textContent = state.title || "metricforge ask";
  document.title = state.title ? `${state.title} – metricforge ask` : "metricforge ask";
  byId("who").hidden = !state.by;
  byId("who").textContent = state.by;
  const cards = byId("cards"), answers = byId("answers");
  cards.replaceChildren();
  answers.replaceChildren();
  if (!current) {
    byId("question").textContent = "Every row has been placed. Thank you.";
  } else {
    byId("question").textContent = TITLES[current.kind];
    current.cards.forEach((content, place) => cards.append(card(content, place, current.kind)));
    for (const choice of choices(current)) {
      answers.append(
        make("button", { type: "button", class: choice.main ? "main" : "", onclick: () => reply(choice.answer), "aria-keyshortcuts": choice.key },
          `${choice.label} `, make("kbd", {}, choice.key)));
    }
  }
  const undo = make("button", { type: "button", onclick: takeBack, "aria-keyshortcuts": "Z" }, "Undo ", make("kbd", {}, "Z"));
  undo.disabled = !(state.progress.people[state.by] > 0);
  answers.append(undo);
  progress(state);
}

function progress(state) {
  const known = state.progress, facts = byId("facts");
  const percent = (share) => `${Math.round(100 * share)} %`;
  const rows = [["answers", state.budget ? `${known.answers} of ${state.budget}` : known.answers]];
  if (replied.length > 4) {
    const minutes = (replied[replied.length - 1] - replied[0]) / 60000;
    rows.push(["answers a minute", ((replied.length - 1) / Math.max(minutes, 1e-3)).toFixed(0)]);
  }
  if (known.groups.length) rows.push(["rows placed", known.placed], ["groups", known.groups.length]);
  if (known.foretold !== null) {
    const [low, high] = known.interval;
    rows.push(["held-out answers predicted", percent(known.foretold)], ["95 % interval", `${Math.round(100 * low)} to ${percent(high)}`]);
  }
  if (known.contradictions) {
    const named = state.contradictions.map((pair) => pair.join(" – ")).join(", ");
    rows.push(["contradictions", `${known.contradictions}: ${named}${known.contradictions > state.contradictions.length ? ", …" : ""}`]);
  }
  if (known.agreement !== null) rows.push(["agreement (κ)", known.agreement.toFixed(2)]);
  if (Object.keys(known.people).length > 1) {
    for (const [name, count] of Object.entries(known.people)) {
      const wrong = name in known.errors ? `, about ${percent(known.errors[name])} wrong` : "";
      rows.push([`by ${name || "nobody named"}`, `${count}${wrong}`]);
    }
  }
  facts.replaceChildren(...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
  const bar = byId("bar");
  bar.hidden = !state.budget;
  if (state.budget) {
    bar.setAttribute("aria-valuenow", String(known.answers));
    bar.setAttribute("aria-valuemax", String(state.budget));
    bar.firstElementChild.style.width = `${Math.min(100, (100 * known.answers) / state.budget)}%`;
  }
  curve(state.curve);
  groups(state);
  byId("advice").textContent = known.enough ? `You may stop: ${known.enough}.` : "";
  byId("notes").textContent = state.notes.join(" ");
  // lines break between the words of the command only, not after the hyphens of an option
  byId("command").replaceChildren(...state.command.split(" ").flatMap((word) => [" ", make("span", {}, word)]).slice(1));
}

function groups(state) {
  const known = state.progress, box = byId("groups");
  box.hidden = !known.groups.length;
  byId("download-groups").hidden = box.hidden;
  if (box.contains(document.activeElement)) return; // somebody is typing a name
  box.querySelector("ul").replaceChildren(...known.groups.map((size, place) => {
    const input = make("input", { value: known.names[place], placeholder: `group ${place + 1}`, maxlength: 80, "aria-label": `name of group ${place + 1}` });
    input.addEventListener("change", () => act(async () => {
      await call("/api/name", { row: known.exemplars[place], name: input.value });
      say(`Group ${place + 1} is named.`);
    }));
    const image = state.pictures ? make("img", { alt: "" }) : "";
    if (image) load(known.exemplars[place], image);
    return make("li", {}, image || make("span", {}, String(place + 1)), input, make("span", {}, `${size} ${size === 1 ? "row" : "rows"}`));
  }));
}

function curve(points) {
  const svg = byId("curve");
  svg.toggleAttribute("hidden", points.length < 2);
  if (points.length < 2) return;
  const draw = (tag, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text) element.textContent = text;
    return element;
  };
  const first = points[0][0], last = points[points.length - 1][0];
  const at = ([answers, share]) => `${28 + (168 * (answers - first)) / Math.max(1, last - first)},${52 - 46 * share}`;
  svg.replaceChildren(
    draw("line", { x1: 28, x2: 196, y1: 52, y2: 52 }), draw("line", { x1: 28, x2: 196, y1: 6, y2: 6 }),
    draw("text", { x: 0, y: 9 }, "100 %"), draw("text", { x: 6, y: 54 }, "0 %"),
    draw("polyline", { points: points.map(at).join(" ") }));
}

// ------------------------------------------------------------------------------------------------------------ actions

const reply = (answer) => act(async () => {
  if (!current) return;
  const state = await call("/api/answer", { id: current.id, answer });
  replied.push(Date.now());
  if (replied.length > 20) replied.shift();
  show(state);
  if (current) say(state.changed || "");
  else finish();
});

const takeBack = () => act(async () => {
  const state = await call("/api/undo", {});
  show(state);
  say(state.undone === null ? "There is nothing to undo." : `Answer ${state.undone} was taken back.`);
});

function finish() {
  const command = byId("command");
  command.hidden = !command.textContent; // a session of a program has no command
  const next = command.hidden ? "" : " To learn from them, run the command below your progress.";
  say(`Your answers are kept.${next} You may close this page.`);
  command.focus();
}

async function download(what) {
  const found = await call(`/api/export/${what}`);
  const link = make("a", { href: URL.createObjectURL(new Blob([found.text], { type: "text/csv" })), download: found.name });
  document.body.append(link);
  link.click();
  link.remove();
}

byId("finish").addEventListener("click", finish);
byId("download").addEventListener("click", () => act(() => download("hints")));
byId("download-groups").addEventListener("click", () => act(() => download("groups")));
byId("help-button").addEventListener("click", () => byId("help").showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open || event.target instanceof HTMLInputElement) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (key === " " && event.target instanceof HTMLElement && event.target.closest("button, summary")) return;
  if (key === "?") byId("help").showModal();
  else if (key === "z") takeBack();
  else if (key === "Escape") finish();
  else if (key === "e") {
    showEqual = !showEqual;
    document.querySelectorAll("details").forEach((details) => { details.open = showEqual; });
  } else {
    const choice = current && choices(current).find((one) => one.keys.includes(key));
    if (!choice) return;
    event.preventDefault();
    reply(choice.answer);
  }
});

act(async () => show(await call("/api/state")));
