import { useResource } from "../resource.ts";

const MAX_NAMED = 1_000;

/** Names of the organization's newest keys by their ids; of any other key the id. */
export function useKeyNames(): (id: string | null | undefined) => string {
  const { data } = useResource<{ data: { id: string; name: string }[] }>(
    `v1/keys?limit=${MAX_NAMED}`,
  );
  return (id) => {
    if (!id) return "No key";
    return data?.data.find((key) => key.id === id)?.name ?? id;
  };
}
