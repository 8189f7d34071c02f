/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Shared by the two files of the registry: object.c, what there is, and registry.c, what the driver tells. */
#ifndef GPSCHED_REGISTRY_H
#define GPSCHED_REGISTRY_H

#include "internal.h"

struct gs_client *gs_find_client(u32 handle);
struct gs_client *gs_client_of_file(const void *file);
struct gs_object *gs_find_object(u32 client, u32 handle);
struct gs_object *gs_object_new(u32 handle, u32 class_, enum gs_kind kind);
void gs_link_client(struct gs_client *client);
void gs_link_object(struct gs_object *object, struct gs_client *client, struct gs_object *parent);
void gs_unlink_tree(struct gs_object *top, struct list_head *dead);
void gs_bury(struct list_head *dead);

#endif
