import type { Author } from "../../src/lib/author.ts";

/** Of administrative acts whose author a test does not look at. */
export const TEST_AUTHOR: Author = {
  kind: "management_key",
  id: "key_test",
  name: "Test",
  via: "api",
  address: null,
  user_agent: null,
  request_id: null,
};
