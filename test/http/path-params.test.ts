import { expect, test } from "bun:test";
import { route } from "../../src/http/route.ts";

const rest = {
  method: "GET",
  tag: "Test",
  summary: "Test",
  access: { kind: "public" },
  responses: {},
} as const;

test("a handler has the parameters that its path names, and TypeScript rejects others", async () => {
  const ITEMS = "/v1/lists/:id/items";
  const named = route({
    ...rest,
    path: `${ITEMS}/:item_id`,
    handle({ params }) {
      // @ts-expect-error The path has no such parameter.
      const unknown: unknown = params.item;
      return Response.json([params.id satisfies string, params.item_id satisfies string, unknown]);
    },
  });
  const wildcard = route({
    ...rest,
    path: "/v1/models/*",
    handle: ({ params }) => new Response(params["*"] satisfies string),
  });
  const context = { params: { id: "a", item_id: "b", "*": "c/d" } } as never;
  expect(await (await named.handle(context)).json()).toEqual(["a", "b", null]);
  expect(await (await wildcard.handle(context)).text()).toBe("c/d");
});
