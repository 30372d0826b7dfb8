import { onContentUpdated } from "vitepress";

/** Where the browser remembers the label of the chosen tab, for the pages that are opened later. */
const STORAGE_KEY = "docs-tab";

/** Chooses the same tab in all groups of a page, and on the pages that are opened later. */
export function chooseTabsTogether(): void {
  if (import.meta.env.SSR) return;
  onContentUpdated(() => {
    const label = localStorage.getItem(STORAGE_KEY);
    if (label !== null) chooseTabs(label);
  });
  document.addEventListener("click", ({ isTrusted, target }) => {
    if (!isTrusted || !(target instanceof HTMLInputElement) || !target.matches(TABS)) return;
    const label = labelOf(target);
    localStorage.setItem(STORAGE_KEY, label);
    const { top } = target.getBoundingClientRect();
    chooseTabs(label);
    // Groups above can have another height now.
    window.scrollBy(0, target.getBoundingClientRect().top - top);
  });
}

const TABS = ".vp-code-group .tabs input";

/** Shows the tab in each group that has it. Clicks on the tabs would scroll the page to them. */
function chooseTabs(label: string): void {
  for (const group of document.querySelectorAll(".vp-code-group")) {
    const tabs = [...group.querySelectorAll<HTMLInputElement>(".tabs input")];
    const chosen = tabs.findIndex((tab) => labelOf(tab) === label);
    if (chosen < 0) continue;
    tabs[chosen]!.checked = true;
    for (const [position, block] of [...group.querySelectorAll(".blocks > *")].entries()) {
      block.classList.toggle("active", position === chosen);
    }
  }
}

function labelOf(tab: HTMLInputElement): string {
  return tab.labels?.[0]?.textContent ?? "";
}
