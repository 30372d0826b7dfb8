import { join } from "node:path";
import { publishedFileSchema } from "./file-schema.ts";
import { variablesTable } from "./variables.ts";

/**
 * `bun run schema` writes the published reference of the configuration: the schema of the file,
 * which editors read, and the table of variables in docs/reference/configuration.md.
 */
const root = join(import.meta.dir, "..", "..", "..");
const schema = `${JSON.stringify(publishedFileSchema(), null, 2)}\n`;
await Bun.write(join(root, "gateway.config.schema.json"), schema);

const page = Bun.file(join(root, "docs", "configuration.md"));
const text = (await page.text()).replace(
  /(<!-- variables -->\n)[\s\S]*?(<!-- \/variables -->)/,
  (_, begin: string, end: string) => `${begin}${variablesTable()}\n${end}`,
);
await Bun.write(page, text);
