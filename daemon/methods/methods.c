// SPDX-License-Identifier: Apache-2.0
#include "daemon/methods/methods_internal.h"

const method_handler methods_handlers[_METHOD_MAX] = {
	[METHOD_HELLO] = method_hello,
	[METHOD_STATUS] = method_status,
	[METHOD_CONFIG_SHOW] = method_config_show,
	[METHOD_TARGET_ARM] = method_target_arm,
	[METHOD_TARGET_JOIN] = method_target_join,
	[METHOD_TARGET_DISARM] = method_target_disarm,
	[METHOD_TARGET_LIST] = method_target_list,
	[METHOD_TARGET_SHOW] = method_target_show,
	[METHOD_TARGET_REGISTER] = method_target_register,
	[METHOD_SNAPSHOT_CREATE] = method_snapshot_create,
	[METHOD_SNAPSHOT_LIST] = method_snapshot_list,
	[METHOD_SNAPSHOT_SHOW] = method_snapshot_show,
	[METHOD_SNAPSHOT_CANCEL] = method_snapshot_cancel,
	[METHOD_SNAPSHOT_DELETE] = method_snapshot_delete,
	[METHOD_SNAPSHOT_FETCH] = method_snapshot_fetch,
	[METHOD_TRIGGER_ADD] = method_trigger_add,
	[METHOD_TRIGGER_LIST] = method_trigger_list,
	[METHOD_TRIGGER_REMOVE] = method_trigger_remove,
	[METHOD_SUBSCRIBE] = method_subscribe,
	[METHOD_UNSUBSCRIBE] = method_unsubscribe,
};
