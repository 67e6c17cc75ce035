"use strict";

const find = (id) => document.getElementById(id);
const pretty = (value) => JSON.stringify(value, null, 2);

function make(name, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function table(rows) {
  const made = make("table");
  for (const [name, text] of rows) {
    const row = made.insertRow();
    row.insertCell().append(make("code", name));
    row.insertCell().textContent = text;
  }
  return made;
}

function resolve(schema, document_) {
  if (!schema || !schema.$ref) return schema;
  return document_.components.schemas[schema.$ref.split("/").pop()];
}

function operation(path, method, told, document_) {
  const details = make("details");
  details.id = told.operationId;
  const summary = make("summary");
  summary.append(make("span", method.toUpperCase(), `method ${method}`));
  summary.append(make("code", path), " ", make("span", told.summary || "", "soft"));
  const inside = make("div");
  if (told.description) inside.append(make("p", told.description));
  if (told.parameters) {
    inside.append(make("h3", "Parameters"));
    inside.append(table(told.parameters.map((p) => [
      `${p.in}: ${p.name}`, p.description || (p.schema && p.schema.description) || "",
    ])));
  }
  if (told.requestBody) {
    const content = told.requestBody.content["application/json"];
    inside.append(make("h3", "Body"));
    inside.append(make("pre", pretty(resolve(content.schema, document_))));
  }
  inside.append(make("h3", "Answers"));
  inside.append(table(Object.keys(told.responses).sort().map((status) => [
    status, told.responses[status].description,
  ])));
  details.append(summary, inside);
  return details;
}

async function draw() {
  const document_ = await (await fetch("/openapi.json")).json();
  find("about").textContent = `${document_.info.description}\nVersion ${document_.info.version}`;
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, told] of Object.entries(methods)) {
      find("list").append(operation(path, method, told, document_));
    }
  }
  const known = await (await fetch("/v1/capabilities")).json();
  for (const capability of known.items || []) {
    const option = make("option", `${capability.name}: ${capability.description}`);
    option.value = capability.name;
    find("capability").append(option);
  }
  // Not whatever comes first by name: that may do harm.
  const example = document_.components.schemas.JobRequest.examples[0];
  if ((known.items || []).some((capability) => capability.name === example.capability)) {
    find("capability").value = example.capability;
    find("input").value = pretty(example.input);
  }
}

function follow(job) {
  const source = new EventSource(job.links.events);
  const ends = ["job.succeeded", "job.failed", "job.cancelled"];
  for (const type of ["job.queued", "job.started", "job.retrying", "job.throttled", ...ends]) {
    source.addEventListener(type, async () => {
      find("state").textContent = type;
      if (!ends.includes(type)) return;
      source.close();
      find("progress").hidden = true;
      find("answer").textContent = pretty(await (await fetch(job.links.self)).json());
    });
  }
  source.addEventListener("job.output.delta", (event) => {
    const told = JSON.parse(event.data).data;
    const answer = find("answer");
    if (told.offset === 0) answer.textContent = "";
    answer.textContent += told.text;
  });
  source.addEventListener("job.progress", (event) => {
    const { done, total } = JSON.parse(event.data).data;
    find("progress").hidden = false;
    find("progress").value = total ? done / total : 0;
  });
}

find("submit").addEventListener("submit", async (event) => {
  event.preventDefault();
  find("outcome").hidden = false;
  let input;
  try {
    input = JSON.parse(find("input").value);
  } catch {
    find("state").textContent = "The input is not JSON.";
    return;
  }
  const response = await fetch("/v1/jobs", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ capability: find("capability").value, input }),
  });
  const told = await response.json();
  find("state").textContent = response.ok ? "submitted" : told.title;
  find("answer").textContent = pretty(told);
  if (response.ok) follow(told);
});

draw();
