import { useResource } from "../resource.ts";
import { mayRead } from "../rights.ts";

const MAX_KEYS = 1_000;

/**
 * Returns a function from key id to name, for the organization's newest keys. For other keys it returns the
 * id.
 */
export function useKeyNames(): (id: string | null | undefined) => string {
  const { data } = useResource<{ data: { id: string; name: string }[] }>(
    mayRead("keys:manage") ? `v1/keys?limit=${MAX_KEYS}` : undefined,
  );
  return (id) => {
    if (!id) return "No key";
    return data?.data.find((key) => key.id === id)?.name ?? id;
  };
}
