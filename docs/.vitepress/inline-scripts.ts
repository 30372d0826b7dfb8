import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const FOLDER = "assets";

/**
 * Moves the inline scripts of a page to files, because the gateway's Content-Security-Policy allows
 * no inline scripts. Returns the changed page.
 */
export function moveScripts(html: string, outDir: string, base: string): string {
  return html.replace(
    /<script((?:(?!\ssrc=)[^>])*)>([\s\S]+?)<\/script>/g,
    (_, attributes: string, script: string) => {
      const hash = createHash("sha256").update(script).digest("base64url").slice(0, 8);
      const name = `${FOLDER}/inline.${hash}.js`;
      mkdirSync(join(outDir, FOLDER), { recursive: true });
      writeFileSync(join(outDir, name), script);
      return `<script${attributes} src="${base}${name}"></script>`;
    },
  );
}
