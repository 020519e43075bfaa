/* Calls that give a pool file another name or none: reported as not modelled. */
#include <errno.h>
#include <fcntl.h>

#include "interpose/model.h"
#include "recorder/events.h"
#include "recorder/file_ids.h"
#include "recorder/pool_files.h"

/* Reports the call, and identifies the inodes of both names anew at their next use. */
static void names_change(where at, const char *call, int old_folder, const char *old_path, int new_folder, const char *new_path)
{
    char relative[PATH_ROOM];
    bool of_pool = old_path && cc_names_pool_file(old_folder, old_path, relative);
    bool to_pool = new_path && cc_names_pool_file(new_folder, new_path, relative);
    if (!of_pool && !to_pool)
        return;
    struct file_state state;
    uint16_t file = 0;
    const char *paths[2] = {old_path, new_path};
    int folders[2] = {old_folder, new_folder};
    for (int i = 0; i < 2; i++)
        if (paths[i] && cc_state_of_path(folders[i], paths[i], AT_SYMLINK_NOFOLLOW, &state)) {
            uint16_t known = cc_known_inode(state.device, state.inode);
            file = known ? known : file;
            cc_forget_inode(state.device, state.inode);
        }
    cc_unmodelled(at, file, call);
}
#define NAMES(call_name, old_folder, old_path, new_folder, new_path, call)                                             \
    (__extension__({                                                                                                   \
        int saved_ = errno;                                                                                            \
        names_change(at, #call_name, old_folder, old_path, new_folder, new_path);                                      \
        errno = saved_;                                                                                                \
        (call);                                                                                                        \
    }))
MODEL(int, rename, (const char *from, const char *to), REAL(rename)(from, to),
      NAMES(rename, AT_FDCWD, from, AT_FDCWD, to, REAL(rename)(from, to)))
MODEL(int, renameat, (int from_folder, const char *from, int to_folder, const char *to),
      REAL(renameat)(from_folder, from, to_folder, to),
      NAMES(rename, from_folder, from, to_folder, to, REAL(renameat)(from_folder, from, to_folder, to)))
MODEL(int, renameat2, (int from_folder, const char *from, int to_folder, const char *to, unsigned flags),
      REAL(renameat2)(from_folder, from, to_folder, to, flags),
      NAMES(rename, from_folder, from, to_folder, to, REAL(renameat2)(from_folder, from, to_folder, to, flags)))
MODEL(int, link, (const char *from, const char *to), REAL(link)(from, to),
      NAMES(link, AT_FDCWD, from, AT_FDCWD, to, REAL(link)(from, to)))
MODEL(int, linkat, (int from_folder, const char *from, int to_folder, const char *to, int flags),
      REAL(linkat)(from_folder, from, to_folder, to, flags),
      NAMES(link, from_folder, from, to_folder, to, REAL(linkat)(from_folder, from, to_folder, to, flags)))
MODEL(int, unlink, (const char *path), REAL(unlink)(path), NAMES(unlink, AT_FDCWD, path, AT_FDCWD, NULL, REAL(unlink)(path)))
MODEL(int, unlinkat, (int folder, const char *path, int flags), REAL(unlinkat)(folder, path, flags),
      NAMES(unlink, folder, path, folder, NULL, REAL(unlinkat)(folder, path, flags)))
MODEL(int, remove, (const char *path), REAL(remove)(path), NAMES(unlink, AT_FDCWD, path, AT_FDCWD, NULL, REAL(remove)(path)))
