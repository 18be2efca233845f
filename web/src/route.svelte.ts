// Addresses of the page, and what is shown at each. Knows nothing of the pages themselves.

export type Tab = "overview" | "nodes" | "runs" | "plan" | "connect";
export const TABS: Tab[] = ["overview", "nodes", "runs", "plan", "connect"];

export type Place =
  | { page: "federations" }
  | { page: "new" }
  | { page: "tokens" }
  | { page: "federation"; federation: string; tab: Tab }
  | { page: "submit"; federation: string }
  | { page: "run"; federation: string; run: string }
  | { page: "node"; federation: string; node: string }
  | { page: "nowhere"; path: string };

export function href(place: Place): string {
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
      return `${of(place.federation)}/submit`;
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
  if (third === "submit") return { page: "submit", federation };
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

  constructor() {
    addEventListener("popstate", () => this.look());
  }

  go(place: Place): void {
    history.pushState(null, "", href(place));
    this.look();
    scrollTo(0, 0);
  }

  private look(): void {
    this.place = placeAt(location.pathname);
  }

  /** Clicks on links of the page change what is shown without loading it anew; all others are left alone. */
  follow = (click: MouseEvent): void => {
    if (click.defaultPrevented || click.button !== 0 || click.metaKey || click.ctrlKey || click.shiftKey) return;
    const link = click.target instanceof Element ? click.target.closest("a") : null;
    if (!link || link.target || link.origin !== location.origin || link.hash) return;
    click.preventDefault();
    this.go(placeAt(link.pathname));
  };
}

export const route = new Route();
