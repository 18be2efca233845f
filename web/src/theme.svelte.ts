// Light or dark: as the system says, until somebody chooses.

const KEY = "trellis.theme";

export type Theme = "system" | "light" | "dark";
export const THEMES: Theme[] = ["system", "light", "dark"];

class Appearance {
  theme = $state<Theme>(THEMES.find((known) => known === localStorage.getItem(KEY)) ?? "system");

  constructor() {
    this.show();
  }

  choose(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem(KEY, theme);
    this.show();
  }

  private show(): void {
    document.documentElement.dataset.theme = this.theme;
  }
}

export const appearance = new Appearance();
