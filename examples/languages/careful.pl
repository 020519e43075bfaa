use strict;
use warnings;
use IO::Handle;

sub save {
    open(my $file, '>', 'cfg.json.new') or die $!;
    print $file shift;
    $file->flush && $file->sync && close($file) or die $!;
    rename('cfg.json.new', 'cfg.json') or die $!;
    open(my $folder, '<', '.') or die $!;
    IO::Handle::sync($folder) or die $!;
}

save('{"colour": "blue"}');
print "saved\n";
