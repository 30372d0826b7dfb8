/** Tests that take long and show what shorter ones show in another setting run with GATEWAY_TEST_THOROUGH=1. */
export const IS_THOROUGH = process.env.GATEWAY_TEST_THOROUGH === "1";
