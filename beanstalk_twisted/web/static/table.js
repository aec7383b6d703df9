// Tables whose pages, order and search are the server's.
import { h, setText } from "./dom.js";

const SEARCH_MS = 250;

/**
 * A table.
 *
 * columns: `{ key, label, isNumber, isWide, sort, cell }`: `cell(row)` gives text or a node;
 * `sort` is what the server calls the order, numbers from the largest; `isWide` hides it on phones.
 * load: called with `{ sort, search, place }`, gives `{ rows, next, note }`; `next` is the place of
 * the next page, if there is one.
 */
export class Table {
  constructor({ heading, columns, load, keyOf, empty, sort = "", search = null, tools = [] }) {
    Object.assign(this, { columns, load, keyOf, empty, sort, search: "" });
    [this.places, this.known, this.serial] = [[""], new Map(), 0];
    this.note = h("span", { class: "note", role: "status" });
    this.body = h("tbody");
    this.heads = columns.map((column) => this.#head(column));
    this.back = h("button", { type: "button", on: { click: () => this.#turn(-1) } }, "Previous");
    this.forth = h("button", { type: "button", on: { click: () => this.#turn(1) } }, "Next");
    this.field = search && h("input", { type: "search", "aria-label": search, placeholder: search, maxlength: 200, spellcheck: "false", on: { input: () => this.#searched() } });
    // Hidden until there is something to show, or that there is nothing.
    this.parts = [
      h("div", { class: "scroll", hidden: true, tabindex: 0, role: "region", "aria-label": heading }, h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body)),
      h("div", { class: "pages", hidden: true }, this.back, this.forth)];
    this.element = h("section", { class: "listing" },
      h("div", { class: "bar" }, h("h2", {}, heading), this.field, tools, this.note),
      this.parts);
    this.#marked();
  }

  #head(column) {
    const inside = column.sort
      ? h("button", { type: "button", class: "sort", on: { click: () => this.#sorted(column) } }, column.label)
      : column.label;
    return h("th", { scope: "col", class: this.#classes(column) }, inside);
  }

  #classes({ isNumber, isWide }) {
    return [isNumber && "number", isWide && "wide"].filter(Boolean).join(" ") || null;
  }

  #sorted(column) {
    this.sort = column.sort;
    this.first();
  }

  #searched() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.search = this.field.value.trim(); this.first(); }, SEARCH_MS);
  }

  /** Show the first page again: what is asked for has changed. */
  first() {
    this.places = [""];
    this.#marked();
    this.refresh();
  }

  #marked() {
    this.columns.forEach(({ sort, isNumber }, at) => {
      if (sort && this.sort === sort) this.heads[at].setAttribute("aria-sort", isNumber ? "descending" : "ascending");
      else this.heads[at].removeAttribute("aria-sort");
    });
  }

  #turn(step) {
    if (step > 0) this.places.push(this.next);
    else this.places.pop();
    this.refresh();
  }

  /** Ask for this page again; rows that stay are changed in place. */
  async refresh() {
    const serial = ++this.serial;
    try {
      const page = await this.load({ sort: this.sort, search: this.search, place: this.places.at(-1) });
      if (serial === this.serial) this.#show(page);
    } catch (error) {
      if (serial !== this.serial) return;
      if (error.status === 404) this.#show({ rows: [], next: "" });
      else setText(this.note, error.message);
    }
  }

  #show({ rows, next, note }) {
    this.next = next;
    this.rows = rows;
    this.back.disabled = this.places.length < 2;
    this.forth.disabled = !next;
    this.parts[0].hidden = false;
    this.parts[1].hidden = this.back.disabled && this.forth.disabled;
    setText(this.note, note ?? "");
    const before = this.known;
    this.known = new Map(rows.map((row) => [this.keyOf(row), before.get(this.keyOf(row)) ?? this.#row()]));
    rows.forEach((row) => this.#fill(this.known.get(this.keyOf(row)), row, before.has(this.keyOf(row))));
    const wanted = rows.length ? [...this.known.values()] : [h("tr", {}, h("td", { class: "empty", colspan: this.columns.length }, this.empty))];
    if (wanted.length !== this.body.children.length || wanted.some((element, at) => element !== this.body.children[at])) this.body.replaceChildren(...wanted);
  }

  #row() {
    return h("tr", {}, this.columns.map((column) => h("td", { class: this.#classes(column) })));
  }

  #fill(element, row, wasShown) {
    this.columns.forEach((column, at) => {
      const [cell, content] = [element.children[at], column.cell(row)];
      const text = content instanceof Node ? content.textContent : content;
      if (cell.textContent === text && cell.childNodes.length) return;
      cell.replaceChildren(content);
      if (wasShown && column.isNumber) {
        cell.classList.remove("lit");
        requestAnimationFrame(() => cell.classList.add("lit"));
      }
    });
  }
}
