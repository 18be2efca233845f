// Addresses of the page, and what is shown at each. Knows nothing of the pages themselves.

export type Tab = "overview" | "nodes" | "runs" | "plan" | "connect";
export const TABS: Tab[] = ["overview", "nodes", "runs", "plan", "connect"];

export type Place =
  | { page: "federations" }
  | { page: "new" }
  | { page: "tokens" }
  | { page: "federation"; federation: string; tab: Tab }
  | { page: "submit"; federation: string }
  | { page: "compare"; federation: string }
  | { page: "run"; federation: string; run: string }
  | { page: "node"; federation: string; node: string }
  | { page: "nowhere"; path: string };

export type Query = Record<string, string>;

/** So that a filter that is typed does not write every letter into the address: browsers limit that. */
const WRITE_DELAY_MS = 200;

export function href(place: Place, query: Query = {}): string {
  return path(place) + search(new URLSearchParams(query));
}

/** Commas between ids and the `=` of filters need no escape. */
function search(query: URLSearchParams): string {
  return query.size ? `?${query.toString().replace(/%(2C|3D)/g, decodeURIComponent)}` : "";
}

function path(place: Place): string {
  const of = (name: string) => `/federations/${encodeURIComponent(name)}`;
  switch (place.page) {
    case "federations":
      return "/";
    case "new":
      return "/new";
    case "tokens":
      return "/tokens";
    case "federation":
      return of(place.federation) + (place.tab === "overview" ? "" : `/${place.tab}`);
    case "submit":
    case "compare":
      return `${of(place.federation)}/${place.page}`;
    case "run":
      return `${of(place.federation)}/runs/${encodeURIComponent(place.run)}`;
    case "node":
      return `${of(place.federation)}/nodes/${encodeURIComponent(place.node)}`;
    case "nowhere":
      return place.path;
  }
}

export function placeAt(path: string): Place {
  const parts = path.split("/").filter(Boolean).map(decoded);
  const [first, federation, third, fourth, ...more] = parts;
  if (first === undefined || (first === "federations" && federation === undefined)) return { page: "federations" };
  if (parts.length === 1 && (first === "new" || first === "tokens")) return { page: first };
  if (first !== "federations" || federation === undefined || more.length) return { page: "nowhere", path };
  if (third === undefined) return { page: "federation", federation, tab: "overview" };
  if (third === "runs" && fourth !== undefined) return { page: "run", federation, run: fourth };
  if (third === "nodes" && fourth !== undefined) return { page: "node", federation, node: fourth };
  if (fourth !== undefined) return { page: "nowhere", path };
  if (third === "submit" || third === "compare") return { page: third, federation };
  const tab = TABS.find((known) => known === third);
  return tab ? { page: "federation", federation, tab } : { page: "nowhere", path };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Route {
  place = $state.raw<Place>(placeAt(location.pathname));
  /** What the page at this place shows: filter, selection, order. */
  query = $state.raw(new URLSearchParams(location.search));
  private writing: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    addEventListener("popstate", () => this.look());
  }

  go(place: Place, query: Query = {}): void {
    this.push(href(place, query));
  }

  /** Changes the query without a new entry in the history. Empty values are removed. */
  show(changes: Query): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    this.query = query;
    clearTimeout(this.writing);
    this.writing = setTimeout(() => this.write(), WRITE_DELAY_MS);
  }

  /** The entries of a list in the query, each once. */
  list(name: string): string[] {
    return [...new Set((this.query.get(name) ?? "").split(",").filter(Boolean))];
  }

  private write(): void {
    if (this.writing === undefined) return;
    clearTimeout(this.writing);
    this.writing = undefined;
    history.replaceState(history.state, "", location.pathname + search(this.query));
  }

  private push(address: string): void {
    this.write();
    history.pushState(null, "", address);
    this.look();
    scrollTo(0, 0);
  }

  private look(): void {
    clearTimeout(this.writing);
    this.writing = undefined;
    this.place = placeAt(location.pathname);
    this.query = new URLSearchParams(location.search);
  }

  /** Clicks on links of the page change what is shown without loading it anew; all others are left alone. */
  follow = (click: MouseEvent): void => {
    if (click.defaultPrevented || click.button !== 0 || click.metaKey || click.ctrlKey || click.shiftKey) return;
    const link = click.target instanceof Element ? click.target.closest("a") : null;
    if (!link || link.target || link.origin !== location.origin || link.hash) return;
    click.preventDefault();
    this.push(link.pathname + link.search);
  };
}

export const route = new Route();
