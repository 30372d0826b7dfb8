import * as lucide from "lucide";

/*
 * The icons of the dashboard, from packages that only development needs: icons of Lucide (ISC) for pages and actions,
 * and marks of LobeHub Icons (MIT) for the authors of models.
 */

export const ICONS_FILE = new URL("../../src/dashboard/web/components/icons.json", import.meta.url);

/** Names in Lucide. */
const ICONS = [
  ...["archive", "bell", "boxes", "building-2", "chart-column", "check", "chevron-down"],
  ...["circle-user", "columns-3", "copy", "database", "download", "ellipsis", "external-link"],
  ...["eye", "file", "gauge", "id-card", "key-round", "layers", "layout-dashboard", "list"],
  ...["log-out", "menu", "message-square", "messages-square", "pencil", "play", "plus", "power"],
  ...["receipt-text", "rotate-cw", "scroll-text", "search", "server", "settings", "shuffle"],
  ...["sliders-horizontal", "terminal", "trash-2", "triangle-alert", "users", "users-round"],
  ...["wallet", "webhook", "x"],
];

/** Names in LobeHub Icons. */
const MARKS = [
  ...["openai", "anthropic", "gemini", "mistral", "meta", "deepseek", "xai", "cohere", "bfl"],
  ...["elevenlabs", "stability", "microsoft", "qwen", "perplexity"],
];

type IconNode = readonly [tag: string, attributes: Readonly<Record<string, string>>];

/** Returns the name of an icon's export: "key-round" is KeyRound. */
const exportName = (name: string) =>
  name.replaceAll(/(?:^|-)(\w)/g, (_, letter: string) => letter.toUpperCase());

/** Returns the content of the file of icons. */
export async function drawIcons(): Promise<string> {
  const icons: Record<string, readonly IconNode[]> = {};
  for (const name of ICONS) {
    const node = (lucide as unknown as Record<string, readonly IconNode[]>)[exportName(name)];
    if (node === undefined) throw new Error(`Lucide has no icon ${name}`);
    icons[name] = node;
  }
  const marks: Record<string, string> = {};
  for (const name of MARKS) {
    const file = import.meta.resolve(`@lobehub/icons-static-svg/icons/${name}.svg`);
    const svg = await Bun.file(new URL(file)).text();
    const paths = [...svg.matchAll(/ d="([^"]+)"/g)].map(([, path]) => path);
    if (paths.length === 0) throw new Error(`${name} has no path`);
    marks[name] = paths.join("");
  }
  return `${JSON.stringify({ icons, marks }, null, 2)}\n`;
}
