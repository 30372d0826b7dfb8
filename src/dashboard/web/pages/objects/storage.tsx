import { type Section, Sections } from "../../components/sections.tsx";
import { CacheSection } from "./cache.tsx";
import { FilesSection } from "./files.tsx";
import { VectorStoresSection } from "./vector-stores.tsx";

export const STORAGE_SECTIONS: readonly Section[] = [
  { name: "", title: "Files", needs: "files:read", Section: FilesSection },
  {
    name: "vector-stores",
    title: "Vector stores",
    needs: "files:read",
    Section: VectorStoresSection,
  },
  {
    ...{ name: "cache", title: "Response cache" },
    ...{ needs: "cache:manage" as const, Section: CacheSection },
  },
];

export function StoragePage() {
  return <Sections page="storage" title="Storage" sections={STORAGE_SECTIONS} />;
}
