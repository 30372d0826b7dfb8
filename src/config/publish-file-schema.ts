import { join } from "node:path";
import { publishedFileSchema } from "./file-schema.ts";

/** `bun run schema` writes the schema of the configuration file, which editors read, into the project. */
const path = join(import.meta.dir, "..", "..", "gateway.config.schema.json");
await Bun.write(path, `${JSON.stringify(publishedFileSchema(), null, 2)}\n`);
