// Requests to this server's API.

const WRITE_HEADER = "X-Beanstalk-Request";

/** What the server says is wrong. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function answered(response) {
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const told = isJson ? await response.json() : null;
  if (!response.ok) throw new Refused(response.status, told?.detail ?? `the server answered ${response.status}`);
  return told;
}

/** A tube's name `.` or `..` gets a `~`, which the server leaves out: browsers take it for a step in the path. */
export function path(...segments) {
  return `api/v1/${segments.map((segment) => encodeURIComponent(segment).replace(/^\.{1,2}$/, "~$&")).join("/")}`;
}

export async function get(where, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return answered(await fetch(text ? `${where}?${text}` : where, { cache: "no-store" }));
}

export async function post(where, body = {}, more = {}) {
  const headers = { "Content-Type": "application/json", [WRITE_HEADER]: "console", ...more };
  return answered(await fetch(where, { method: "POST", headers, body: JSON.stringify(body) }));
}
