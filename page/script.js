// The page can be read without this. It keeps what is shown up to date, asks before something is changed, and says times by the
// visitor's own clock.
"use strict";

const live = document.getElementById("live");
const say = (words) => { if (live && live.textContent !== words) live.textContent = words; };

// times says when something happened in the visitor's zone.
function times(within) {
  for (const t of within.querySelectorAll("time")) {
    const at = new Date(t.dateTime);
    if (!isNaN(at)) t.textContent = at.toLocaleString();
  }
}

// place puts a section where the one of its name was. What has the focus keeps it.
function place(main, id, html) {
  const box = document.createElement("template");
  box.innerHTML = html; // the server has escaped every text in it, and scripts in it would not run
  const fresh = box.content.firstElementChild;
  if (!fresh) return;
  times(fresh);
  const old = document.getElementById(id);
  if (!old) { main.append(fresh); return; }
  const focus = old.contains(document.activeElement) ? [...old.querySelectorAll("a, button, input, [tabindex]")].indexOf(document.activeElement) : -1;
  const scrolled = [...old.querySelectorAll(".wide")].map((e) => e.scrollLeft);
  old.replaceWith(fresh);
  fresh.querySelectorAll(".wide").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
  if (focus >= 0) fresh.querySelectorAll("a, button, input, [tabindex]")[focus]?.focus();
}

function follow(main, from) {
  const stream = new EventSource(from);
  const read = (e) => JSON.parse(e.data);
  stream.addEventListener("section", (e) => { const s = read(e); place(main, s.id, s.html); say("live"); });
  stream.addEventListener("order", (e) => {
    const ids = read(e);
    for (const s of [...main.querySelectorAll("section")]) if (!ids.includes(s.id)) s.remove();
    for (const id of ids) {
      let s = document.getElementById(id);
      if (!s) { s = document.createElement("section"); s.id = id; }
      main.append(s);
    }
  });
  stream.addEventListener("beat", () => say("live"));
  stream.addEventListener("trouble", (e) => say(read(e)));
  stream.addEventListener("gone", (e) => { stream.close(); say(read(e)); });
  const log = document.getElementById("log");
  let signs = 0;
  stream.addEventListener("lines", () => { log.textContent = ""; signs = 0; say("live"); });
  stream.addEventListener("more", (e) => {
    const down = log.scrollTop + log.clientHeight >= log.scrollHeight - 30;
    const text = read(e).join("\n") + "\n";
    log.append(document.createTextNode(text));
    for (signs += text.length; signs > 1e6 && log.childNodes.length > 1;) { signs -= log.firstChild.length; log.firstChild.remove(); }
    if (down) log.scrollTop = log.scrollHeight;
    say("live");
  });
  stream.addEventListener("end", (e) => { stream.close(); say(read(e)); });
  stream.onerror = () => say(stream.readyState === EventSource.CLOSED ? "not live: load the page again" : "connecting…");
  return stream;
}

document.addEventListener("submit", (e) => {
  const ask = e.target.dataset.confirm;
  if (!ask) return;
  if (!confirm(ask)) { e.preventDefault(); return; }
  const sure = document.createElement("input");
  sure.type = "hidden"; sure.name = "sure"; sure.value = "yes";
  e.target.append(sure);
});

if (document.body.dataset.to) location.replace(document.body.dataset.to);
times(document);
const log = document.getElementById("log");
if (log) log.scrollTop = log.scrollHeight;
// A page that nobody sees is not kept up to date: browsers have few connections for each address.
if (document.body.dataset.live) {
  let stream = null;
  const look = () => {
    if (document.hidden) { stream?.close(); stream = null; say("not live: hidden"); }
    else stream ??= follow(document.getElementById("main"), document.body.dataset.live);
  };
  document.addEventListener("visibilitychange", look);
  window.addEventListener("pagehide", () => { stream?.close(); stream = null; });
  window.addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });
  look();
}
