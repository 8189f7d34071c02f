/* Written for gpsched's tests: only the lines that the hooks stand next to, as releases from 560 on have them:
 * other lines around, further down in the file. */
#include "os-interface.h"
#include "nv-linux.h"
#include "nv-caps-imex.h"

/* at line 705 */
static void
nv_module_exit(nv_stack_t *sp)
{
    nv_module_state_exit(sp);
    nv_clear_dma_mask(sp);
    rm_shutdown_rm(sp);
}

/* at line 745 */
static int __init
nv_module_init(nv_stack_t **sp)
{
    int rc;

    nv_sanity_check();
    rc = nv_module_state_init(*sp);
    if (rc < 0)
        goto init_rm_exit;

    return rc;

init_rm_exit:
    return rc;
}

/* at line 2190 */
static void
nvidia_close_callback(
   nv_linux_file_private_t *nvlfp
)
{
    nv = NV_STATE_PTR(nvl);

    rm_cleanup_file_private(sp, nv, &nvlfp->nvfp);

    down(&nvl->mmap_lock);
}

/* at line 2470 */
int
nvidia_ioctl(
    struct inode *inode,
    struct file *file,
    unsigned int cmd,
    unsigned long i_arg)
{
    switch (arg_cmd)
    {
        default:
            rmStatus = rm_ioctl(sp, nv, &nvlfp->nvfp, arg_cmd, arg_copy, arg_size);
            status = ((rmStatus == NV_OK) ? 0 : -EINVAL);
            break;
    }
    return status;
}

/* at line 3160 */
static int
nvidia_ctl_close(
    struct inode *inode,
    struct file *file
)
{
    up(&nvl->ldata_lock);

    rm_cleanup_file_private(sp, nv, &nvlfp->nvfp);

    if (nvlfp->free_list != NULL)
    {
    }
    return 0;
}
