import { join } from "node:path";
import { Glob } from "bun";
import { publishedFileSchema } from "./file-schema.ts";
import { type VariableGroup, variablesTable } from "./variables.ts";

/**
 * `bun run schema` writes the published reference of the configuration: the schema of the file,
 * which editors read, and the tables of variables in docs/reference/configuration*.md.
 */
const root = join(import.meta.dir, "..", "..", "..");
const schema = `${JSON.stringify(publishedFileSchema(), null, 2)}\n`;
await Bun.write(join(root, "gateway.config.schema.json"), schema);

for (const path of new Glob("docs/reference/configuration*.md").scanSync({ cwd: root })) {
  const page = Bun.file(join(root, path));
  const text = (await page.text()).replace(
    /(<!-- variables: ([a-z-]+) -->\n)[\s\S]*?(<!-- \/variables -->)/g,
    (_, begin: string, group: string, end: string) =>
      `${begin}${variablesTable(group as VariableGroup)}\n${end}`,
  );
  await Bun.write(page, text);
}
