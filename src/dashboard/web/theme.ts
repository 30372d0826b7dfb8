import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const STORED_AS = "gateway-dashboard-theme";

export const theme = signal<Theme>(stored());

function stored(): Theme {
  const value = localStorage.getItem(STORED_AS);
  return value === "light" || value === "dark" ? value : "system";
}

export function chooseTheme(chosen: Theme): void {
  theme.value = chosen;
  localStorage.setItem(STORED_AS, chosen);
  applyTheme();
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme.value;
  // Charts are drawn, not styled.
  document.dispatchEvent(new Event("theme"));
}
