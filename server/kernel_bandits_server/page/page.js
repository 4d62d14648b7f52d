// The page of a service: the state of one loop, live.
import { COLOURS, areaChart, bar, format, lineChart } from "./charts.js";

const $ = (id) => document.getElementById(id);
let loop = null;
let state = null;
let model = null;
let turn = 0;

async function ask(path, options = {}) {
  const key = sessionStorage.getItem("key");
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const response = await fetch(path, { headers, cache: "no-store", ...options });
  if (response.status === 401 || response.status === 403) {
    const refused = await response.json();
    openDoor(key ? refused.error.message : "");
    throw new Error("key");
  }
  if (!response.ok) throw new Error(String(response.status));
  return response;
}

function openDoor(message) {
  turn += 1;
  $("door").hidden = false;
  $("board").hidden = true;
  $("refusal").textContent = message;
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value);
  $("key").value = "";
  start();
});

async function start() {
  try {
    const { loops } = await (await ask("v1/loops")).json();
    $("door").hidden = true;
    $("board").hidden = false;
    $("loops").replaceChildren(...(loops.length > 1 ? loops.map(tab) : []));
    const wanted = decodeURIComponent(location.hash.slice(1));
    choose(loops.includes(wanted) ? wanted : loops[0]);
  } catch (error) {
    if (error.message === "key") return;
    $("live").textContent = "the service does not respond; trying again …";
    setTimeout(start, 2000);
  }
}

function tab(name) {
  const button = document.createElement("button");
  button.textContent = name;
  button.addEventListener("click", () => choose(name));
  return button;
}

function choose(name) {
  loop = name;
  location.hash = encodeURIComponent(name);
  document.title = `${name} – decision loop`;
  $("title").textContent = name;
  for (const button of $("loops").children) button.toggleAttribute("aria-current", button.textContent === name);
  state = model = null;
  $("variable").replaceChildren();
  $("column").replaceChildren();
  watch();
}

// The state of the loop, again and again.
async function watch() {
  const own = (turn += 1);
  const name = loop;
  while (own === turn) {
    try {
      const found = await (await ask(`v1/loops/${encodeURIComponent(name)}`)).json();
      if (own !== turn) return;
      show(found);
      if (!model || found.model.observations !== model.observations) {
        model = found.model;
        showModel();
        await Promise.all([respond(), split()]);
      }
    } catch (error) {
      if (own !== turn || error.message === "key") return;
      $("live").textContent = "connection lost; trying again …";
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

// An arm has one colour on the whole page; those that are played least share the last.
function colourOf(arm) {
  const place = state.arms.findIndex((one) => one.arm === arm);
  return COLOURS[place < 0 ? 7 : Math.min(place, 7)];
}

async function respond() {
  const variable = $("variable").value;
  if (!variable) return;
  const path = `v1/loops/${encodeURIComponent(loop)}/response?variable=${encodeURIComponent(variable)}`;
  const found = await (await ask(path)).json();
  const numbers = found.smooth && found.values.every((value) => typeof value === "number");
  const middle = (found.arms.length - 1) / 2;
  const lines = found.arms.map((line, i) => ({
    x: numbers ? found.values : found.values.map((_, place) => place),
    y: line.mean,
    low: line.low,
    high: line.high,
    colour: colourOf(line.arm),
    shift: numbers ? 0 : (i - middle) * 0.06,
  }));
  legend("response-legend", [...found.arms.map((line) => [line.arm, colourOf(line.arm)]), ["± one deviation, averaged over visitors seen", null]]);
  lineChart($("response-chart"), { lines, labels: numbers ? null : found.values });
}

// The share and the mean reward of each arm by segment of a column, and the lift there.
async function split() {
  const column = $("column").value;
  if (!column) return;
  const path = `v1/loops/${encodeURIComponent(loop)}/segments?column=${encodeURIComponent(column)}`;
  const found = await (await ask(path)).json();
  const arms = state.arms.slice(0, 6).map((one) => one.arm);
  const lifts = new Map(found.lifts.map((one) => [one.segment, one]));
  const table = item("table", "");
  const head = item("tr", "");
  head.append(item("th", column), item("th", "rewards"), ...arms.map((arm) => item("th", arm)));
  if (lifts.size) head.append(item("th", "lift over today"));
  table.append(head);
  for (const one of found.segments) {
    const row = item("tr", "");
    row.append(item("td", one.segment), item("td", one.count));
    for (const arm of arms) {
      const own = one.arms.find((other) => other.arm === arm);
      row.append(item("td", own ? `${Math.round(own.share * 100)} % · ${estimate(own)}` : "–"));
    }
    const lift = lifts.get(one.segment);
    if (lifts.size) row.append(item("td", lift && lift.lift !== null ? `${format(lift.low)} to ${format(lift.high)}` : "–"));
    table.append(row);
  }
  $("segments").replaceChildren(table);
}
$("column").addEventListener("change", split);
$("variable").addEventListener("change", respond);

function when(seconds) {
  const date = new Date(seconds * 1000);
  const span = state.series.length * state.width;
  if (span > 3 * 86400) return date.toLocaleDateString([], { month: "short", day: "numeric" });
  const options = { hour: "2-digit", minute: "2-digit", ...(span < 600 ? { second: "2-digit" } : {}) };
  return date.toLocaleTimeString([], options);
}

function estimate(one) {
  if (!one || one.mean === null) return "–";
  if (one.low === null) return format(one.mean);
  // an interval that ends at a bound of the rewards is shorter on that side
  const error = Math.max(one.mean - one.low, one.high - one.mean);
  // two digits of the error, and as many decimals of the mean
  const decimals = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(error))));
  return `${one.mean.toFixed(decimals)} ± ${error.toFixed(decimals)}`;
}

function show(found) {
  state = found;
  $("live").textContent = `live · ${found.events} events`;
  $("warnings").replaceChildren(...found.warnings.map((text) => item("li", text)));
  $("maturity").textContent = found.maturity.words;
  showVerdict(found.verdict, found.challenger);
  const columns = [...$("column").options].map((option) => option.value);
  if (columns.join() !== found.columns.join()) $("column").replaceChildren(...found.columns.map((name) => new Option(name, name)));
  const best = found.best_arm;
  tiles([
    ["reward", estimate(found.reward), `earned per decision (${found.reward.count} rewards)`],
    ["uniform", estimate(found.uniform), "estimate for uniform play"],
    ["best", estimate(best), best ? `estimate for always playing ${best.arm}` : "estimate for the best fixed arm"],
    ["pending", found.pending, "decisions await their reward"],
    ["silent", found.counts.silent + found.counts.expired, "decisions without a reward"],
  ]);
  drawRewards();
  drawShares();
  showArms();
  facts("decisions", [
    ["made", found.counts.decisions],
    ["rewarded", found.counts.rewards],
    ["silent", `${found.counts.silent} (after ${format(found.silence.after)} s: ${found.silence.reward ?? "nothing learned"})`],
    ["expired", found.counts.expired],
    ["late rewards", found.counts.late],
    ["oldest pending", found.oldest_pending === null ? "–" : `${format(found.oldest_pending)} s`],
    ["exploration floor", format(found.exploration_floor)],
    ["mode", found.apprentice ? "watches only" : "decides"],
  ]);
}

function showVerdict(verdict, challenger) {
  $("verdict").hidden = !verdict.counts && !challenger;
  $("verdict").dataset.verdict = verdict.verdict;
  $("verdict-words").textContent = verdict.counts ? verdict.words : "";
  const percent = (part) => `${part < 0 ? "" : "+"}${format(part * 100)} %`;
  const relative = verdict.relative && verdict.lift !== null ? verdict.relative : null;
  facts("verdict-numbers", verdict.counts ? [
    ["loop", `${format(verdict.means.loop)} per decision (${verdict.counts.loop} settled)`],
    [`control group (${verdict.rule})`, `${format(verdict.means.control)} per decision (${verdict.counts.control} settled)`],
    ["lift, with a 95 % interval that may be looked at every day",
      verdict.lift === null ? "–" : `${format(verdict.lift)} (${format(verdict.low)} to ${format(verdict.high)})`],
    ["relative to today", relative ? `${percent(relative[0])} (${percent(relative[1])} to ${percent(relative[2])})` : "–"],
    ["split", verdict.split.words],
  ] : []);
  $("challenger-words").textContent = challenger
    ? `Challenger (${challenger.policy}, ${format(challenger.share * 100)} % of the traffic): ${challenger.words} ` +
      `Its gain over the policy lies within ${format(challenger.low)} to ${format(challenger.high)} per decision.`
    : "";
}

function drawRewards() {
  const series = state.series.filter((one) => one.reward !== null);
  const x = series.map((one) => one.time + state.width / 2);
  const y = series.map((one) => one.reward);
  const lines = [{ x, y, low: y, high: y, colour: COLOURS[0] }];
  const names = [["earned", COLOURS[0]]];
  const flat = (one, colour, name) => {
    if (!one || one.mean === null || !x.length) return;
    const ends = x.length > 1 ? [x[0], x[x.length - 1]] : [x[0]];
    const all = (value) => ends.map(() => value ?? one.mean);
    lines.push({ x: ends, y: all(one.mean), low: all(one.low), high: all(one.high), colour, dashed: true });
    names.push([name, colour, true]);
  };
  flat(state.reward, COLOURS[0], "on average");
  flat(state.uniform, COLOURS[1], "uniform play (estimate)");
  if (state.best_arm) flat(state.best_arm, COLOURS[2], `always ${state.best_arm.arm} (estimate)`);
  legend("reward-legend", [...names, ["bands hold the truth with 95 %, whenever you look", null]]);
  lineChart($("reward-chart"), { lines, xText: when, height: 240 });
}

function drawShares() {
  const series = state.series.filter((one) => Object.keys(one.plays).length);
  const arms = state.arms.slice(0, 7).map((one) => one.arm);
  const totals = series.map((one) => Object.values(one.plays).reduce((sum, count) => sum + count, 0));
  const parts = arms.map((arm) => ({
    shares: series.map((one, place) => (one.plays[arm] || 0) / totals[place]),
    colour: colourOf(arm),
  }));
  if (state.arms.length > 7) {
    const rest = series.map((_, place) => 1 - parts.reduce((sum, part) => sum + part.shares[place], 0));
    parts.push({ shares: rest, colour: COLOURS[7] });
  }
  const names = [...arms, ...(state.arms.length > 7 ? ["others"] : [])];
  legend("share-legend", names.map((name) => [name, colourOf(name)]));
  areaChart($("share-chart"), { x: series.map((one) => one.time), parts, xText: when });
}

function showArms() {
  const total = state.arms.reduce((sum, one) => sum + one.plays, 0) || 1;
  const rows = state.arms.slice(0, 12).map((one) => {
    const row = document.createElement("tr");
    const share = item("td", "");
    share.className = "bar";
    share.append(bar(one.plays / total, colourOf(one.arm)));
    const retired = state.retired.map(String).includes(one.arm) ? " (retired)" : "";
    row.append(item("td", one.arm + retired), share, item("td", one.plays), item("td", estimate(one)));
    return row;
  });
  $("arms").tBodies[0].replaceChildren(...rows);
}

function showModel() {
  const select = $("variable");
  const chosen = select.value;
  const order = Object.keys(model.relevance).filter((name) => model.variables.includes(name));
  const names = [...order, ...model.variables.filter((name) => !order.includes(name))];
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
  $("left-out").textContent = model.left_out.length ? `Left out, as they may be noise: ${model.left_out.join(", ")}.` : "";
  const largest = Math.max(...Object.values(model.relevance), 1e-12);
  const rows = Object.entries(model.relevance).slice(0, 12).map(([name, value]) => {
    const row = document.createElement("tr");
    const share = item("td", "");
    share.className = "bar";
    share.append(bar(value / largest, COLOURS[0]));
    row.append(item("td", name), share, item("td", format(value)));
    return row;
  });
  $("relevance").tBodies[0].replaceChildren(...rows);
  facts("model", [
    ["rewards learned", model.observations],
    ["noise (standard deviation)", model.noise_variance === null ? "–" : format(Math.sqrt(model.noise_variance))],
    ["expected before any data", format(model.prior_mean)],
    ["dictionary size", model.dictionary_size],
    ["effective dimension", format(model.effective_dimension)],
    ["changes of the kernel", model.kernel_changes],
    ["memory", `${format(model.memory_bytes / 1e6)} MB`],
  ]);
}

function tiles(entries) {
  $("tiles").replaceChildren(
    ...entries.map(([name, value, text]) => {
      const tile = item("div", "");
      tile.className = "tile";
      tile.dataset.name = name;
      const [main, error] = String(value).split(" ± ");
      const number = item("b", main);
      if (error) number.append(item("small", ` ± ${error}`));
      tile.append(number, item("span", text));
      return tile;
    }),
  );
}

function facts(id, entries) {
  $(id).replaceChildren(...entries.flatMap(([name, value]) => [item("dt", name), item("dd", value)]));
}

function legend(id, entries) {
  $(id).replaceChildren(
    ...entries.map(([name, colour, dashed]) => {
      const entry = item("span", "");
      if (colour) {
        const mark = document.createElement("i");
        mark.style.borderTopColor = colour;
        mark.className = dashed ? "dashed" : "";
        entry.append(mark);
      }
      entry.append(name);
      return entry;
    }),
  );
}

function item(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width || !state) return;
  width = window.innerWidth;
  show(state);
  respond();
  split();
});
start();
