/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe point for programs that are no C: gpsched.adaptive.hints.explicit calls it.
 */
#include "gpsched_hint.h"
