// Keeps a page up to date: on a change it fetches the page again and replaces the regions marked
// with data-live. It also sends the forms of actions, as JSON. Without it pages show the same.

const FIRST_MS = 150; // changes come in groups
const LEAST_MS = 3000; // between two fetches: the machine of the server has other work
const AGAIN_MS = [1000, 2000, 5000, 10000, 30000];
const AGES_MS = 20000;
const RUNS_MS = 15000; // while something runs: what is silent on another machine makes no change

const topics = (document.body.dataset.topics ?? "").split(" ").filter(Boolean);
const state = document.getElementById("live-state");
const shown = new Map(); // HTML of regions as the server gave it, by their ids
let seen = document.body.dataset.seen; // number of the last change that is shown or was told
let stream = null;
let timer = null;
let fetchedAt = 0;
let isFetching = false;
let isStale = false; // a change came while a fetch was under way
let failures = 0;
let isSending = false; // an action

function say(text) {
  if (state.textContent !== text) state.textContent = text;
}

function concerns(change) {
  return topics.some((one) => {
    const [topic, id] = one.split(":");
    return topic === change.topic && (id === undefined || Number(id) === change.subject_id);
  });
}

// Following

function follow() {
  if (!topics.length || document.hidden || stream) return;
  let isFirst = true;
  stream = new EventSource(`/api/v1/events?after=${seen}`);
  stream.addEventListener("open", () => {
    if (failures || !isFirst) schedule();
    isFirst = false;
    failures = 0;
    say("Live");
  });
  stream.addEventListener("change", (event) => {
    seen = event.lastEventId;
    if (concerns(JSON.parse(event.data))) schedule();
  });
  stream.addEventListener("reset", (event) => {
    seen = event.lastEventId;
    schedule();
  });
  stream.addEventListener("error", () => {
    failures += 1;
    say("Connection lost: trying again");
    if (stream && stream.readyState === EventSource.CLOSED) {
      stop();
      followLater();
    }
  });
}

// A stream that was refused does not tell why: the page does.
async function followLater() {
  if ((await refresh()) === 401) return;
  setTimeout(follow, AGAIN_MS[Math.min(failures, AGAIN_MS.length) - 1]);
}

function stop() {
  stream?.close();
  stream = null;
}

function schedule() {
  isStale = true;
  if (timer || isFetching || document.hidden) return;
  timer = setTimeout(refresh, Math.max(FIRST_MS, fetchedAt + LEAST_MS - performance.now()));
}

// Gives the status of the answer, 0 without one.
async function refresh() {
  let status = 0;
  clearTimeout(timer);
  timer = null;
  isStale = false;
  isFetching = true;
  try {
    const answer = await fetch(location.href, { headers: { "x-ddlplan-refresh": "1" } });
    status = answer.status;
    if (answer.ok) {
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      if (stream?.readyState === EventSource.OPEN) say("Live");
    } else if (status === 401) {
      stop();
      say("Signed out: reload this page to sign in");
    } else {
      say(`The server answered ${status}: ${stream ? "reload this page" : "trying again"}`);
    }
  } catch {
    say("Connection lost: trying again");
  }
  isFetching = false;
  fetchedAt = performance.now();
  if (isStale) schedule();
  return status;
}

// Replacing regions

function show(page) {
  document.title = page.title;
  for (const fresh of page.querySelectorAll("[data-live]")) {
    const old = document.getElementById(fresh.id);
    const html = fresh.outerHTML;
    if (!old) {
      const before = document.getElementById(fresh.previousElementSibling?.id ?? "");
      if (!before) {
        // Another page altogether, as when the first thing is stored. An action that is being
        // sent leads to a page of its own.
        if (!isSending) location.reload();
        return;
      }
      before.after(document.adoptNode(fresh));
      prepare(fresh);
      shown.set(fresh.id, html);
      continue;
    }
    if (shown.get(fresh.id) === html) continue;
    if (isSelectedIn(old)) {
      setTimeout(schedule, 3000);
      continue;
    }
    shown.set(fresh.id, html);
    replace(old, document.adoptNode(fresh));
  }
}

function isSelectedIn(region) {
  const selection = getSelection();
  return Boolean(selection && !selection.isCollapsed && selection.containsNode(region, true));
}

function replace(old, fresh) {
  prepare(fresh);
  for (const details of old.querySelectorAll("details[id]")) {
    const same = fresh.querySelector(`#${CSS.escape(details.id)}`);
    if (same) same.open = details.open;
  }
  for (const box of old.querySelectorAll("input[type=checkbox]")) {
    const same = [...fresh.querySelectorAll("input[type=checkbox]")].find(
      (one) => one.name === box.name && one.value === box.value,
    );
    if (same) same.checked = box.checked;
  }
  const places = [...old.querySelectorAll(".scroll, .log")].map((box) => [
    box.scrollLeft,
    box.scrollTop,
    box.classList.contains("log") && box.scrollTop + box.clientHeight >= box.scrollHeight - 4,
  ]);
  const focused = old.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  old.replaceWith(fresh);
  [...fresh.querySelectorAll(".scroll, .log")].forEach((box, number) => {
    const [left, top, isAtEnd] = places[number] ?? [0, 0, box.classList.contains("log")];
    box.scrollLeft = left;
    box.scrollTop = isAtEnd ? box.scrollHeight : top;
  });
  if (focused) {
    const all = fresh.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]");
    [...all].find((one) => keyOf(one) === focused)?.focus({ preventScroll: true });
  }
}

function keyOf(element) {
  const own = ["id", "href", "name", "value"].map((name) => element.getAttribute(name) ?? "");
  const around = element.closest("details[id], form[id]")?.id ?? "";
  return [element.tagName, around, ...own].join("\n");
}

// Shows what only works with this module.
function prepare(root) {
  for (const one of root.querySelectorAll("[data-script]")) {
    // Browsers have no clipboard for pages by plain HTTP from another machine.
    one.hidden = "copy" in one.dataset && !navigator.clipboard;
  }
  writeAges(root);
}

function writeAges(root) {
  for (const one of root.querySelectorAll("time[data-age]")) {
    one.textContent = ageOf(Date.parse(one.dateTime), one.dataset.age);
  }
}

// As `rendering._describe_age` has it on the server.
function ageOf(moment, date) {
  const seconds = Math.max(0, (Date.now() - moment) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 14 * 86400) return `${Math.floor(seconds / 86400)} days ago`;
  return date;
}

// Actions

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.action) return;
  event.preventDefault();
  if (!form.dataset.confirm || confirm(form.dataset.confirm)) send(form);
});

async function send(form) {
  const answered = form.querySelector(".answer");
  const buttons = [...form.querySelectorAll("button")];
  answered.textContent = "";
  for (const button of buttons) button.disabled = true;
  isSending = true;
  try {
    const answer = await fetch(form.dataset.action, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(valuesOf(form)),
    });
    const document_ = await answer.json();
    if (answer.ok) {
      location.assign(form.dataset.then.replace("{id}", String(document_.data?.id ?? "")));
      return;
    }
    answered.textContent = document_.error?.message ?? `The server answered ${answer.status}.`;
  } catch (error) {
    answered.textContent =
      error instanceof SyntaxError ? `No JSON: ${error.message}` : "No connection.";
  }
  for (const button of buttons) button.disabled = false;
  isSending = false;
}

function valuesOf(form) {
  const values = {};
  for (const field of form.elements) {
    if (!field.name) continue;
    if (field.type === "checkbox") {
      if (field.checked) values[field.name] = true;
    } else if (field.value.trim() !== "") {
      if (field.dataset.as === "document") return JSON.parse(field.value);
      const isNumber = field.type === "number" || field.dataset.as === "number";
      values[field.name] = isNumber ? Number(field.value) : field.value.trim();
    }
  }
  return values;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = button.parentElement.querySelector("code").textContent;
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 2000);
});

document.addEventListener("change", async (event) => {
  const input = event.target;
  const target = input.dataset?.into && document.getElementById(input.dataset.into);
  if (target && input.files?.length) target.value = await input.files[0].text();
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stop();
    say("Paused while hidden");
  } else {
    schedule();
    follow();
  }
});
addEventListener("pagehide", stop);
addEventListener("pageshow", (event) => {
  isSending = false;
  if (event.persisted) schedule();
  follow();
});

for (const region of document.querySelectorAll("[data-live]")) {
  shown.set(region.id, region.outerHTML);
}
prepare(document);
// What a log says last is what is going on, or why it ended.
for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
setInterval(() => document.hidden || writeAges(document), AGES_MS);
setInterval(() => {
  if (stream && document.querySelector(".state.running, .state.queued")) schedule();
}, RUNS_MS);
follow();
