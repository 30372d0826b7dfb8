import { fileURLToPath } from "node:url";
import { drawIcons, ICONS_FILE } from "./icon-sources.ts";

/*
 * Writes the icons that the dashboard inlines. Run it after you have added a name to icon-sources.ts:
 *
 *   bun test/dashboard/draw-icons.ts
 */

await Bun.write(fileURLToPath(ICONS_FILE), await drawIcons());
