import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const STORAGE_KEY = "gateway-dashboard-theme";

export const theme = signal<Theme>(stored());

function stored(): Theme {
  const value = localStorage.getItem(STORAGE_KEY);
  return value === "light" || value === "dark" ? value : "system";
}

export function chooseTheme(chosen: Theme): void {
  theme.value = chosen;
  localStorage.setItem(STORAGE_KEY, chosen);
  applyTheme();
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme.value;
  // Charts are drawn on a canvas, so they have to redraw.
  document.dispatchEvent(new Event("theme"));
}
